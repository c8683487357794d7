"""Norms: RMSNorm written out in fp32, LayerNorm as one kernel."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import LayerNorm, RMSNorm
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(RMSNorm)
def rms_norm(ctx: Context, m: RMSNorm, x: Tensor) -> Tensor:
    """``(x / rms * weight.float())`` in fp32, then cast down (RMSNorm.forward); what it makes on the way has variables to the end."""
    weight, dtype = ctx.parameter(next(m.own_weights())), x.dtype
    x = F.cast(x, "float32", "input in fp32")
    variance = F.mean(F.mul(x, x, "square"), "variance")
    normal = F.mul(x, F.rsqrt(F.add_scalar(variance, "variance + eps"), "inverse root mean square"), "normalised in fp32")
    if m.style == "gemma":
        weight = F.add_scalar(weight, "1 + weight")
    return F.cast(F.mul(normal, F.cast(weight, "float32", "weight in fp32"), "output in fp32"), dtype, "output")


@runs(LayerNorm)
def layer_norm(ctx: Context, m: LayerNorm, x: Tensor) -> Tensor:
    """``nn.LayerNorm``."""
    return F.layer_norm(x, [ctx.parameter(w) for w in m.own_weights()], "output")
