"""Gemma 4's tower, as its code runs it on images without padding."""

from __future__ import annotations

from memcalc.code.context import TOWER, Context, runs
from memcalc.code.transformers.attention import attend, merge
from memcalc.code.transformers.gemma4 import branches
from memcalc.code.transformers.project import head_shapes
from memcalc.code.transformers.rotary import turn
from memcalc.components import Rotary
from memcalc.components.gemma4_vision import Gemma4Patches, Gemma4Pool, Gemma4VisionAttention, Gemma4VisionLayer
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.routing import index_rows
from memcalc.tape.tensor import Shape, Tensor

COS, SIN, PADDING, PLACES = f"{TOWER}cos", f"{TOWER}sin", f"{TOWER}padding", f"{TOWER}places"


@runs(Gemma4Patches)
def patches(ctx: Context, m: Gemma4Patches, pixels: Tensor) -> Tensor:
    """pixels (images · patches, channels · patch²) → (images, patches, hidden); leaves angles and padding in ``ctx.shared``."""
    ctx.shared[PADDING] = ctx.tape.new((ctx.batch, ctx.seq), "bool", "padding")
    dtype = ctx.settings.dtype
    centred = F.scale(F.add_scalar(pixels, "pixel_values - 1/2"), "2 * (pixel_values - 1/2)")
    centred = F.cast(centred, dtype, "pixel_values in the model's dtype")
    hidden: Shape = (ctx.batch, ctx.seq, m.proj.outputs)
    x = F.view(ctx.run(m.proj, centred), hidden)
    x = F.add(x, positions(ctx, m, hidden), "embeddings")
    with ctx.tape.no_grad():
        make_angles(ctx, m, x.dtype)
    return x


def positions(ctx: Context, m: Gemma4Patches, shape: Shape) -> Tensor:
    """A row of the table for the column and one for the row, summed; none where there is padding (Gemma4VisionPatchEmbedder._position_embeddings)."""
    table = ctx.parameter(next(m.own_weights()))
    places = ctx.tape.new((ctx.batch, ctx.seq, Axis("2", 2)), "int64", "places of patches")
    ids = F.view(places, (ctx.batch, ctx.seq))
    first = F.embedding(ids, F.narrow(table, table.shape[1:]), m.proj.outputs, "position_embeds of columns")
    second = F.embedding(ids, F.narrow(table, table.shape[1:]), m.proj.outputs, "position_embeds of rows")
    return F.masked_fill(F.view(F.add(first, second, "position_embeds"), shape), ctx.shared[PADDING], "position_embeds without padding")


def make_angles(ctx: Context, m: Gemma4Patches, dtype: str) -> None:
    """Cosines and sines of columns and rows, for each image (Gemma4VisionRotaryEmbedding.forward)."""
    both: Shape = (ctx.batch, ctx.seq, Axis("2", 2), Axis("head_dim/4", m.head_dim // 4))
    whole: Shape = (ctx.batch, ctx.seq, Axis("head_dim", m.head_dim))
    angles = ctx.tape.new(both, "float32", "angles")
    cos = F.scale(ctx.tape.new(both, "float32", "cos of axes"))
    sin = F.scale(ctx.tape.new(both, "float32", "sin of axes"))
    cos = ctx.tape.new(whole, "float32", "cos in fp32")
    sin = ctx.tape.new(whole, "float32", "sin in fp32")
    ctx.shared[COS], ctx.shared[SIN] = F.cast(cos, dtype, COS), F.cast(sin, dtype, SIN)
    del angles, cos, sin


@runs(Gemma4VisionAttention)
def attention(ctx: Context, m: Gemma4VisionAttention, x: Tensor) -> Tensor:
    """x (images, patches, hidden) → the same (Gemma4VisionAttention.forward)."""
    shapes = head_shapes(ctx, m)
    assert m.k is not None
    assert m.v is not None
    query = turn_halves(ctx, ctx.normed(m.q_norm, F.split_heads(ctx.run(m.q, x), shapes[0]), "q_norm"), "query")
    key = turn_halves(ctx, ctx.normed(m.k_norm, F.split_heads(ctx.run(m.k, x), shapes[1]), "k_norm"), "key")
    value = ctx.normed(m.v_norm, F.split_heads(ctx.run(m.v, x), shapes[1]), "v_norm")
    return merge(ctx, m, attend(ctx, m, query, key, value))


def turn_halves(ctx: Context, x: Tensor, name: str) -> Tensor:
    """Each half of the heads turned by its own angles (apply_multidimensional_rope)."""
    half = Axis("head_dim/2", x.shape[-1].size // 2)
    rotary, parts = Rotary(half.size), F.split_last(x, (half, half))
    turned = [turn(rotary, part, (F.slice_last(ctx.shared[COS], half), F.slice_last(ctx.shared[SIN], half)), f"half of {name}") for part in parts]
    return F.cat(turned, x.shape[-1], name)


@runs(Gemma4VisionLayer)
def layer(ctx: Context, m: Gemma4VisionLayer, x: Tensor) -> Tensor:
    """x (images, patches, hidden) → the same (Gemma4VisionEncoderLayer.forward)."""
    return branches(ctx, m, x)


@runs(Gemma4Pool)
def pool(ctx: Context, m: Gemma4Pool, x: Tensor) -> Tensor:
    """x (images, patches, hidden) → (tokens, text's width) (Gemma4VisionPooler.forward, Gemma4VisionModel.forward, Gemma4MultimodalEmbedder.forward)."""
    tokens = Axis("tokens of an image", ctx.seq.size // m.side**2)
    rows, hidden, dtype = Axis("tokens", ctx.batch.size * tokens.size), x.shape[-1], x.dtype
    filled = F.masked_fill(x, ctx.shared[PADDING], "patches without padding")
    averages = averaged(ctx, filled, (ctx.batch, tokens, hidden))
    del filled
    wide = F.scale(F.cast(averages, "float32", "averages in fp32"), "scaled averages")
    del averages
    where = ctx.tape.new((rows, Axis("2", 2)), "int64", "places of tokens")
    wide = index_rows(F.view(wide, (rows, hidden)), where, rows, "tokens in fp32")
    del where
    if m.standardised:
        buffer = ctx.tape.new((hidden,), "float32", "standard scale in fp32")
        wide = F.mul(F.add_scalar(wide, "centred"), buffer, "standardised")
    features = F.cast(wide, dtype, "features")
    del wide, x
    ctx.set_aside((features,))
    return ctx.run(m.proj, ctx.run(m.norm, features, "embedding_pre_projection_norm"))


def averaged(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    """A product in fp32 with what each patch gives to each token (Gemma4VisionPooler._avg_pool_by_positions)."""
    square: Shape = (ctx.batch, ctx.seq, shape[1])
    with ctx.tape.no_grad():
        places = ctx.tape.new((ctx.batch, ctx.seq, Axis("2", 2)), "int64", "places of patches")
        index = ctx.tape.new((ctx.batch, ctx.seq), "int64", "token of each patch")
        ones = ctx.tape.new(square, "int64", "token of each patch, as ones")
        weights = F.cast(ones, "float32", "tokens in fp32")
        del ones
        weights = F.scale(weights, "weights of patches")
    wide = F.cast(x, "float32", "patches in fp32")
    out = F.matmul(weights, wide, shape, "averages in fp32")
    del wide
    out = F.cast(out, x.dtype, "averages")
    del places, index
    return out
