"""Norms, written out in fp32."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtune import compiled
from memcalc.code.transformers import norm as transformers
from memcalc.components import RMSNorm
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(RMSNorm)
def rms_norm(ctx: Context, m: RMSNorm, x: Tensor) -> Tensor:
    """As transformers', but that the fp32 copy has a variable to the end (RMSNorm.forward); Gemma's is the same (GemmaRMSNorm.forward)."""
    if compiled.is_compiled(ctx):
        return compiled.rms_norm(x, ctx.parameter(next(m.own_weights())))
    if m.style != "llama":
        return transformers.rms_norm(ctx, m, x)
    weight = ctx.parameter(next(m.own_weights()))
    wide = F.cast(x, "float32", "input in fp32")
    normal = F.mul(wide, F.rsqrt(F.add_scalar(F.mean(F.pow2(wide), "variance"), "variance + eps"), "inverse root mean square"), "normalised in fp32")
    normal = F.cast(normal, x.dtype, "normalised")
    return F.mul(normal, weight, "output")
