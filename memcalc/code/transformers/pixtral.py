"""Pixtral's tower, and how Mistral 3 merges its patches."""

from __future__ import annotations

from memcalc.code.context import TOWER, Context, runs
from memcalc.code.transformers.attention import eager, merge
from memcalc.code.transformers.project import project
from memcalc.code.transformers.rotary import turn
from memcalc.code.transformers.vision import cast_pixels
from memcalc.components import Rotary
from memcalc.components.pixtral import PixtralAttention, PixtralMerger, PixtralPatches
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.image import unfold
from memcalc.tape.functional.scan import reordered
from memcalc.tape.tensor import Shape, Tensor

COS, SIN, MASK, HELD = f"{TOWER}cos", f"{TOWER}sin", f"{TOWER}mask", f"{TOWER}patches of each image"


@runs(PixtralPatches)
def patches(ctx: Context, m: PixtralPatches, pixels: Tensor) -> Tensor:
    """pixels (images, channels, height, width) → (1, patches, hidden); leaves angles and the mask in ``ctx.shared`` (PixtralVisionModel.forward)."""
    each = ctx.run(m.conv, cast_pixels(ctx, pixels))
    ctx.shared[HELD] = Tensor(ctx.tape, each.shape, each.dtype, each.storage)
    x = reordered(each, (ctx.batch, ctx.seq, m.conv.hidden), "patches in a row")
    del each
    x = ctx.run(m.norm, x, "ln_pre")
    with ctx.tape.no_grad():
        make_angles(ctx, m, x.dtype)
        if ctx.settings.attention != "flash_attention_2":
            ctx.shared[MASK] = ctx.tape.new((ctx.seq, Axis("keys", ctx.seq.size)), x.dtype, MASK)
    return x


def make_angles(ctx: Context, m: PixtralPatches, dtype: str) -> None:
    """Cosines and sines of rows and columns (PixtralVisionRotaryEmbedding.forward)."""
    half, whole = Axis("head_dim/2", m.head_dim // 2), Axis("head_dim", m.head_dim)
    both: Shape = (ctx.seq, Axis("2", 2), half)
    places = ctx.tape.new((ctx.seq, Axis("2", 2)), "int64", "places of patches")
    angles = ctx.tape.new(both, "float32", "angles")
    cos, sin = F.scale(ctx.tape.new(both, "float32", "cos of axes")), F.scale(ctx.tape.new(both, "float32", "sin of axes"))
    cos, sin = ctx.tape.new((ctx.seq, whole), "float32", "cos in fp32"), ctx.tape.new((ctx.seq, whole), "float32", "sin in fp32")
    ctx.shared[COS], ctx.shared[SIN] = F.cast(cos, dtype, COS), F.cast(sin, dtype, SIN)
    del places, angles, cos, sin


@runs(PixtralAttention)
def attention(ctx: Context, m: PixtralAttention, x: Tensor) -> Tensor:
    """x (1, patches, hidden) → the same (PixtralAttention.forward)."""
    query, key, value = project(ctx, m, x)
    angles = ctx.shared[COS], ctx.shared[SIN]
    query, key = turn(Rotary(m.head_dim), query, angles, "query"), turn(Rotary(m.head_dim), key, angles, "key")
    mask = ctx.shared.get(MASK)
    if ctx.settings.attention == "eager":
        return merge(ctx, m, eager(ctx, m, query, key, value, mask=mask))
    return merge(ctx, m, F.scaled_dot_product_attention(query, key, value, mask=mask))


@runs(PixtralMerger)
def merger(ctx: Context, m: PixtralMerger, x: Tensor) -> Tensor:
    """x (1, patches, hidden) → (tokens, text's width) (Mistral3PatchMerger.forward, Mistral3MultiModalProjector.forward)."""
    ctx.set_aside((x,))
    x = ctx.run(m.norm, x, "norm")
    tokens = Axis("tokens", ctx.seq.size // m.side**2)
    squares = unfold(x, (m.merging.inputs, tokens), "squares of each image")
    row = reordered(squares, (tokens, m.merging.inputs), "squares in a row")
    x = ctx.run(m.merging, row)
    del squares, row
    x = apply_activation(ctx.run(m.mlp.up, x), m.mlp.activation)
    return ctx.run(m.mlp.down, x)
