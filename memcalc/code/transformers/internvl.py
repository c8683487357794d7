"""InternVL's tower."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.internvl import ScaledLayer
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(ScaledLayer)
def scaled_layer(ctx: Context, m: ScaledLayer, x: Tensor) -> Tensor:
    """x (images, patches, hidden) → the same; what the attention gave, scaled, is held to the end (InternVLVisionLayer.forward)."""
    first, second = (ctx.parameter(weight) for weight in m.own_weights())
    h = ctx.run(m.norm, x, "layernorm_before")
    held = ctx.probabilities = []
    h = ctx.run(m.attention, h, "attention")
    ctx.probabilities = None
    mixed = F.mul(h, first, "scaled attention output")
    del h
    residual = F.add(mixed, x, "residual")
    h = ctx.run(m.norm, residual, "layernorm_after")
    h = ctx.run(m.mlp, h, "mlp")
    h = F.mul(h, second, "scaled output of the network")
    h = F.add(h, residual, "output")
    held.clear()
    del mixed
    return h
