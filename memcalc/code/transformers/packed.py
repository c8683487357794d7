"""Towers that see the patches of all images in one row (Qwen2-VL to 3.5, GLM-4.1V): positions on two axes, attention within each image."""

from __future__ import annotations

from math import isqrt

from memcalc.code.context import TOWER, Context, runs
from memcalc.code.transformers import liger
from memcalc.code.transformers.rotary import turn
from memcalc.code.transformers.vision import cast_pixels
from memcalc.components import Rotary
from memcalc.components.vision import ConvMerger, PackedAttention, PackedEmbedding, PatchMerger
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.image import unbind
from memcalc.tape.functional.routing import index_rows, sum_over
from memcalc.tape.functional.scan import outer
from memcalc.tape.tensor import Shape, Tensor

COS, SIN = f"{TOWER}cos", f"{TOWER}sin"


@runs(PackedEmbedding)
def packed_embedding(ctx: Context, m: PackedEmbedding, pixels: Tensor) -> Tensor:
    """pixels (patches, channels · frames · patch²) → (1, patches, hidden); leaves angles in ``ctx.shared`` (Qwen3VLVisionModel.forward)."""
    with ctx.inside("patch_embed"):
        held = cast_pixels(ctx, pixels)
        if not ctx.settings.records and held.storage is not pixels.storage:
            ctx.shared[f"{TOWER}pixel_values in the model's dtype"] = held
        x = F.view(ctx.run(m.patches, held), (ctx.batch, ctx.seq, m.patches.hidden))
        del held
    if m.norm is not None:
        x = ctx.run(m.norm, x, m.norm_name)
    if m.style == "qwen3_vl":
        x = F.add(x, drawn_positions(ctx, m, x.dtype), "embeddings")
    elif m.style == "qwen2_5_vl":
        x = by_window(ctx, x, "patches by window")
    with ctx.tape.no_grad():
        make_angles(ctx, m)
    return x if m.style != "glm4v" else F.add(x, sampled_positions(ctx, m), "embeddings")


def drawn_positions(ctx: Context, m: PackedEmbedding, dtype: str) -> Tensor:
    """Four rows of the table for each patch, weighted in fp32 and summed."""
    table, four = next(m.own_weights()), Axis("corners", 4)
    ids = ctx.tape.new((ctx.seq, four), "int64", "rows of the table")
    weights = ctx.tape.new((ctx.seq, four, Axis("1", 1)), "float32", "weights of rows")
    rows = F.embedding(ids, ctx.parameter(table), m.patches.hidden, "position_embeds")
    weighted = outer(rows, weights, rows.shape, "weighted position_embeds")
    del rows
    total = sum_over(weighted, 1, "position_embeds in fp32")
    del weighted
    return F.view(F.cast(total, dtype, "position_embeds"), (ctx.batch, ctx.seq, m.patches.hidden))


def sampled_positions(ctx: Context, m: PackedEmbedding) -> Tensor:
    """The whole table in fp32, sampled at each patch's place, cast back (Glm4vVisionEmbeddings.forward)."""
    table = next(m.own_weights())
    wide = F.cast(ctx.parameter(table), "float32", "table in fp32")
    grid = ctx.tape.new((ctx.seq, Axis("2", 2)), "float32", "places of patches")
    out = ctx.tape.new((ctx.seq, m.patches.hidden), "float32", "position_embeds in fp32")
    whole = wide.shape

    def backward(wants: tuple[bool, ...], g: Tensor, wide: Tensor, grid: Tensor) -> tuple[Tensor]:
        return (g.tape.new(whole, g.dtype, "gradient of table"),)

    ctx.tape.record(out, (wide,), (wide, grid), backward)
    return F.view(F.cast(out, ctx.settings.dtype, "position_embeds"), (ctx.batch, ctx.seq, m.patches.hidden))


def by_window(ctx: Context, x: Tensor, name: str) -> Tensor:
    """Patches in another order; backward puts them back."""
    order = ctx.tape.new((Axis("tokens", ctx.seq.size // 4),), "int64", "order of windows")
    flat = F.view(x, (ctx.seq, x.shape[-1]))
    return F.view(index_rows(flat, order, ctx.seq, name), x.shape)


def make_angles(ctx: Context, m: PackedEmbedding) -> None:
    """Cosines and sines of rows and columns, in fp32 (Qwen3VLVisionRotaryEmbedding.forward)."""
    quarter, half, whole = Axis("head_dim/4", m.head_dim // 4), Axis("head_dim/2", m.head_dim // 2), Axis("head_dim", m.head_dim)
    both: Shape = (ctx.seq, Axis("2", 2), quarter)
    angles = ctx.tape.new(both, "float32", "angles")
    cos = F.scale(ctx.tape.new(both, "float32", "cos of axes"))
    sin = F.scale(ctx.tape.new(both, "float32", "sin of axes"))
    for name in (COS, SIN):
        joined = ctx.tape.new((ctx.seq, half), "float32", "both axes")
        ctx.shared[name] = ctx.tape.new((ctx.seq, whole), "float32", name)
        del joined
    if m.style == "qwen2_5_vl":
        ctx.shared[COS], ctx.shared[SIN] = (F.like(ctx.shared[name], f"{name} by window") for name in (COS, SIN))
    del angles, cos, sin


@runs(PackedAttention)
def packed_attention(ctx: Context, m: PackedAttention, x: Tensor) -> Tensor:
    """x (1, patches, hidden) → the same (Qwen2_5_VLVisionAttention.forward).

    Images (or windows) run one by one; here they are one call, whose saved tensors are the same, and whose eager temporaries are those of all.
    """
    heads, dim = Axis("heads", m.num_heads), Axis("head_dim", m.head_dim)
    rows: Shape = (ctx.seq, heads, dim)
    whole = F.split_heads(ctx.run(m.q, x), (Axis("3", 3), *rows))
    query, key, value = unbind(whole, rows)
    del whole
    query, key = turn_patches(ctx, m, query, key)
    chunks = chunk_shape(ctx, m)
    query, key, value = F.split_heads(query, chunks), F.split_heads(key, chunks), F.split_heads(value, chunks)
    out = attend_each(ctx, query, key, value)
    out = F.clone(out, "attention output of all images")
    del query, key, value
    return ctx.run(m.o, F.view(out, (ctx.batch, ctx.seq, Axis("heads * head_dim", m.num_heads * m.head_dim))))


def turn_patches(ctx: Context, m: PackedAttention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Copies in fp32, turned and cast back (apply_rotary_pos_emb_vision)."""
    dtype, rotary = query.dtype, Rotary(m.head_dim)
    angles = tuple(F.view(ctx.shared[name], (ctx.seq, Axis("1", 1), ctx.shared[name].shape[-1])) for name in (COS, SIN))
    wide_query, wide_key = F.cast(query, "float32", "query in fp32"), F.cast(key, "float32", "key in fp32")
    if ctx.settings.liger.rope:
        query, key = liger.rotate(wide_query, wide_key, (angles[0], angles[1]))
    else:
        query = turn(rotary, wide_query, (angles[0], angles[1]), "turned query")
        key = turn(rotary, wide_key, (angles[0], angles[1]), "turned key")
    query = F.cast(query, dtype, "query")
    return query, F.cast(key, dtype, "key")


def chunk_shape(ctx: Context, m: PackedAttention) -> Shape:
    """Images or windows, heads, patches of each, head_dim; the last windows of an image that its side does not divide are smaller."""
    patches = ctx.seq.size // ctx.settings.images
    heads, dim = Axis("heads", m.num_heads), Axis("head_dim", m.head_dim)
    if not m.side or not isinstance(patches, int) or isqrt(patches) % m.side:
        return (Axis("images", ctx.settings.images), heads, Axis("patches of an image", patches), dim)
    windows = patches // m.side**2
    return (Axis("windows", ctx.settings.images * windows), heads, Axis("patches of a window", m.side**2), dim)


def attend_each(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention without a mask, eager or fused."""
    if ctx.settings.attention != "eager":
        return F.scaled_dot_product_attention(query, key, value)
    square = (*query.shape[:3], Axis("keys", key.shape[2].size))
    scores = F.scale(F.matmul(query, key, square, "scores"), "scaled scores")
    scores = F.cast(F.softmax(scores, "float32", "probabilities in fp32"), query.dtype, "probabilities")
    out = F.matmul(scores, value, query.shape, "attention output")
    return F.clone(out, "attention output in order")


@runs(PatchMerger)
def patch_merger(ctx: Context, m: PatchMerger, x: Tensor) -> Tensor:
    """x (1, patches, hidden) → (tokens, text's width) (Qwen2_5_VLPatchMerger, Qwen3VLVisionPatchMerger); one that feeds a text layer passes x on."""
    tokens = Axis("tokens", ctx.seq.size * x.shape[-1].size // m.merged.size)
    order = ctx.tape.new((tokens,), "int64", "order of tokens") if m.reordered else None
    h = F.view(x, (tokens, m.merged)) if m.after else x
    h = F.view(ctx.run(m.norm, h, m.norm_name), (tokens, m.merged))
    h = apply_activation(ctx.run(m.mlp.up, h), m.mlp.activation)
    h = ctx.run(m.mlp.down, h)
    if order is not None:
        h = index_rows(h, order, tokens, "tokens in order")
    if not m.deep:
        ctx.set_aside((x,))
        return h
    ctx.shared[m.deep] = h
    return x


@runs(ConvMerger)
def conv_merger(ctx: Context, m: ConvMerger, x: Tensor) -> Tensor:
    """x (1, patches, hidden) → (tokens, text's width) (Glm4vVisionModel.forward, Glm4vVisionPatchMerger.forward)."""
    x = ctx.run(m.norm, x, "post_layernorm")
    side = Axis("merge", m.conv.patch)
    tokens = Axis("tokens", ctx.seq.size // m.conv.patch**2)
    square = F.view(x, (tokens, x.shape[-1], side, side))
    h = F.view(ctx.run(m.conv, square), (tokens, m.conv.hidden))
    with ctx.inside("merger"):
        h = ctx.run(m.proj, h)
        h = apply_activation(ctx.run(m.projection_norm, h, "post_projection_norm"), "gelu")
        assert m.mlp.up is not None
        gated = F.mul(apply_activation(ctx.run(m.mlp.gate, h), m.mlp.activation), ctx.run(m.mlp.up, h), "gate * up")
        return ctx.run(m.mlp.down, gated)
