"""Llama 4's tower, as its code runs it on images (or tiles) that are rows of a batch."""

from __future__ import annotations

from memcalc.code.context import TOWER, Context, runs
from memcalc.components.llama4_vision import Llama4Patches
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.image import class_and_patches
from memcalc.tape.functional.matmul import under_autocast
from memcalc.tape.tensor import Tensor


@runs(Llama4Patches)
def patches(ctx: Context, m: Llama4Patches, pixels: Tensor) -> Tensor:
    """pixels (images, channels, height, width) → (images, patches + 1, hidden) (Llama4UnfoldConvolution.forward, Llama4VisionModel.forward)."""
    depth, count = m.proj.inputs, Axis("patches of an image", m.patches)
    unfolded = ctx.tape.new((ctx.batch, depth, count), pixels.dtype, "unfolded pixel_values")
    cut = F.view(under_autocast(unfolded), (ctx.batch, count, depth))
    cut = F.clone(cut, "patches in order")
    x = ctx.run(m.proj, cut)
    del unfolded, cut
    token, positions = (ctx.parameter(weight) for weight in m.own_weights())
    x = class_and_patches(token, x, (ctx.batch, ctx.seq, m.proj.outputs))
    x = ctx.run(m.norm, F.add(x, positions, "embeddings"), "layernorm_pre")
    half, parts = Axis("head_dim/2", m.head_dim // 2), Axis("real and imaginary", 2)
    ctx.shared[f"{TOWER}complex angles"] = Tensor(ctx.tape, (ctx.seq, half, parts), "float32", None)
    return x
