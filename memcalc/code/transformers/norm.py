"""Norms: transformers' RMSNorms are written out in elementwise operators; LayerNorm is one kernel."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import LayerNorm, RMSNorm
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(RMSNorm)
def rms_norm(ctx: Context, m: RMSNorm, x: Tensor) -> Tensor:
    """Saves the fp32 copy of x, its reciprocal root mean square, and both factors of the last product (LlamaRMSNorm.forward)."""
    weights = [ctx.parameter(w) for w in m.own_weights()]
    wide = F.cast(x, "float32", "input in fp32")
    variance = F.mean(F.pow2(wide), "variance")
    inverse = F.rsqrt(F.add_scalar(variance, "variance + eps"), "inverse root mean square")
    normal = F.mul(wide, inverse, "normalised in fp32")
    del wide
    return F.mul(F.cast(normal, x.dtype, "normalised"), weights[0], "output")


@runs(LayerNorm)
def layer_norm(ctx: Context, m: LayerNorm, x: Tensor) -> Tensor:
    """Saves x and the fp32 mean and reciprocal deviation of each row."""
    return F.layer_norm(x, [ctx.parameter(w) for w in m.own_weights()], "output")
