"""Pixel shuffling, as models that have it write it out."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.shuffle import PixelShuffle
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(PixelShuffle)
def pixel_shuffle(ctx: Context, m: PixelShuffle, x: Tensor) -> Tensor:
    """x (images, patches, hidden) → (images, tokens, width): two copies in another order, then the layers (InternVLModel.pixel_shuffle)."""
    if m.held:
        ctx.set_aside((x,))
    if m.drops:
        x = F.narrow(x, (ctx.batch, Axis("patches", ctx.seq.size - 1), x.shape[-1]))
    x = F.clone(x, "patches side by side")
    x = F.clone(x, "patches in squares")
    x = F.view(x, (ctx.batch, Axis("tokens", m.tokens), m.linears[0].inputs))
    if m.norm is not None:
        x = ctx.run(m.norm, x, m.norm_name)
    for linear, activation in zip(m.linears, m.activations, strict=True):
        x = ctx.run(linear, x)
        x = apply_activation(x, activation) if activation else x
    return x
