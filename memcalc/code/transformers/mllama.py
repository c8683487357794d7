"""Llama 3.2 Vision's tower, and its layers of cross-attention."""

from __future__ import annotations

from memcalc.code.context import TOWER, Context, runs
from memcalc.code.transformers.attention import eager, merge, repeat_kv
from memcalc.code.transformers.layer import decoder_layer
from memcalc.code.transformers.project import project
from memcalc.code.transformers.vision import cast_pixels
from memcalc.components.mllama import CrossAttention, CrossLayer, CrossStates, SelfLayer, TiledAttention, TiledEnd, TiledLayer, TiledMiddle, TiledPatches, Tiles
from memcalc.specs.model import Axis, Weight
from memcalc.tape import functional as F
from memcalc.tape.functional.image import class_and_patches
from memcalc.tape.functional.matmul import under_autocast
from memcalc.tape.functional.scan import pad, stack
from memcalc.tape.tensor import Shape, Tensor

HELD, MASK = f"{TOWER}patch_embeds", f"{TOWER}mask of tiles"
STATES, SEEN, ROWS = "cross_attention_states", "cross_attention_mask", "full_text_row_masked_out_mask"


@runs(TiledPatches)
def patches(ctx: Context, m: TiledPatches, pixels: Tensor) -> Tensor:
    """pixels (images * tiles, channels, height, width) → (images, tiles * padded tokens, hidden) (the beginning of MllamaVisionModel.forward)."""
    hidden, tiles = m.conv.hidden, Axis("tiles", m.pre.tiles)
    each = ctx.run(m.conv, cast_pixels(ctx, pixels))
    ctx.shared[HELD] = Tensor(ctx.tape, each.shape, each.dtype, each.storage)
    flat = (each.shape[0], Axis("patches", m.patches), hidden)
    with ctx.inside("pre_tile_positional_embedding"):
        x = add_tiles(ctx, m.pre, F.view(each, (ctx.batch, tiles, *flat[1:])))
    token = ctx.parameter(next(m.own_weights()))
    x = class_and_patches(token, F.view(x, flat), (flat[0], Axis("patches + 1", m.patches + 1), hidden))
    x = F.view(x, (ctx.batch, tiles, *x.shape[1:]))
    x = add_positions(ctx, m, x)
    x = ctx.run(m.norm, x, "layernorm_pre")
    x = pad(x, (ctx.batch, ctx.seq, hidden), "padded patches")
    with ctx.tape.no_grad():
        scores = ctx.tape.new((ctx.batch, ctx.seq, Axis("keys", ctx.seq.size)), ctx.settings.autocast or x.dtype, "products of masks")
        ctx.shared[MASK] = ctx.tape.new(scores.shape, scores.dtype, MASK)
        del scores
    return x


def add_tiles(ctx: Context, m: Tiles, x: Tensor) -> Tensor:
    """x (images, tiles, tokens, hidden) plus gated positions of its tiles (MllamaPrecomputedAspectRatioEmbedding.forward)."""
    positions = F.mul(rows_of(ctx, m, (x.shape[0], x.shape[1], Axis("1", 1), m.hidden)), F.tanh(ctx.parameter(m.gate)), "gated positions of tiles")
    return F.add(x, positions, "with positions of tiles")


def rows_of(ctx: Context, m: Tiles, shape: Shape) -> Tensor:
    """Rows of the table for each image."""
    ids = Tensor(ctx.tape, (shape[0], Axis("one", 1)), "int64", None)
    return F.view(F.embedding(ids, ctx.parameter(m.table), m.table.shape[1], "rows for aspect ratios"), shape)


def add_positions(ctx: Context, m: TiledPatches, x: Tensor) -> Tensor:
    """Positions of patches in any tile and in each, weighted against each other by one gate (MllamaPrecomputedPositionEmbedding.forward)."""
    table = ctx.parameter(m.positions)
    with ctx.inside("gated_positional_embedding"):
        gate = ctx.parameter(m.by_tile.gate)
        shared = F.mul(table, F.add_scalar(F.tanh(gate), "1 - gate"), "gated positions")
        h = F.add(x, shared, "with positions")
        own = F.mul(rows_of(ctx, m.by_tile, x.shape), F.tanh(gate), "gated positions by tile")
        h = F.add(h, own, "with positions by tile")
    del shared, own
    return h


@runs(TiledAttention)
def tiled_attention(ctx: Context, m: TiledAttention, x: Tensor) -> Tensor:
    """x (images, tokens, hidden) → the same (MllamaVisionAttention.forward)."""
    query, key, value = project(ctx, m, x)
    mask = ctx.shared[MASK]
    if ctx.settings.attention == "eager":
        return merge(ctx, m, eager(ctx, m, query, key, value, mask=mask))
    return merge(ctx, m, F.scaled_dot_product_attention(query, key, value, mask=under_autocast(mask)))


@runs(TiledLayer)
def tiled_layer(ctx: Context, m: TiledLayer, x: Tensor) -> Tensor:
    """x (images, tokens, hidden) → the same (MllamaVisionEncoderLayer.forward)."""
    if m.shows:
        ctx.shared[f"{TOWER}{m.shows}"] = x
    if not m.gated:
        return decoder_layer(ctx, m, x)
    assert m.input_layernorm is not None
    assert m.post_attention_layernorm is not None
    assert m.mlp is not None
    first, second = m.own_weights()
    held = ctx.probabilities = []
    h = ctx.run(m.input_layernorm, x, "input_layernorm")
    h = ctx.run(m.self_attn, h, "self_attn")
    ctx.probabilities = None
    residual = h = x + gated(ctx, first, h)
    h = ctx.run(m.post_attention_layernorm, h, "post_attention_layernorm")
    h = ctx.run(m.mlp, h, "mlp")
    h = residual + gated(ctx, second, h)
    held.clear()
    return h


def gated(ctx: Context, gate: Weight, branch: Tensor) -> Tensor:
    """``tanh(gate) * branch``."""
    return F.mul(branch, F.tanh(ctx.parameter(gate)), "gated branch")


@runs(TiledMiddle)
def middle(ctx: Context, m: TiledMiddle, x: Tensor) -> Tensor:
    """x (images, tokens, hidden) → the same."""
    if m.shows:
        ctx.shared[f"{TOWER}{m.shows}"] = x
    h = ctx.run(m.norm, x, "layernorm_post")
    with ctx.inside("post_tile_positional_embedding"):
        h = add_tiles(ctx, m.post, F.view(h, (ctx.batch, Axis("tiles", m.post.tiles), Axis("padded tokens", m.tokens), m.post.hidden)))
    return F.view(h, x.shape)


@runs(TiledEnd)
def end(ctx: Context, m: TiledEnd, x: Tensor) -> Tensor:
    """x (images, tokens, hidden) → (images, tiles * tokens, text's width) (the end of MllamaVisionModel.forward, and MllamaModel.forward)."""
    tiles, padded, kept = Axis("tiles", m.tiles), Axis("padded tokens", m.padded), Axis("tokens", m.tokens)

    def without_padding(t: Tensor) -> Tensor:
        return F.narrow(F.view(t, (ctx.batch, tiles, padded, m.hidden)), (ctx.batch, tiles, kept, m.hidden))

    h = without_padding(x)
    wide = Axis("hidden_size * states", m.hidden.size * len(m.states))
    shown = stack([without_padding(ctx.shared[f"{TOWER}{name}"]) for name in m.states], (*h.shape[:-1], wide), "states of layers")
    features = F.cat([h, shown], m.proj.inputs, "image features")
    del h, shown
    ctx.set_aside((features,))
    return F.view(ctx.run(m.proj, features), (ctx.batch, Axis("tiles * tokens", m.tiles * m.tokens), m.proj.outputs))


@runs(CrossStates)
def cross_states(ctx: Context, m: CrossStates, x: Tensor) -> Tensor:
    """x itself; leaves the tokens of images and the mask of who sees them in ``ctx.shared`` (_prepare_cross_attention_mask)."""
    features, tape = ctx.beside.pop(), ctx.tape
    keys = Axis("tokens of images", features.shape[0].size * features.shape[1].size // ctx.batch.size)
    ctx.shared[STATES] = F.view(features, (ctx.batch, keys, features.shape[-1]))
    del features
    with tape.no_grad():
        square, dtype = (ctx.batch, ctx.seq, keys), ctx.settings.dtype
        repeated = tape.new(square, "int64", "mask for each token")
        inverted = tape.new(square, dtype, "inverted mask")
        flags = tape.new(square, "bool", "flags")
        ctx.shared[SEEN] = tape.new(square, dtype, SEEN)
        del flags, repeated
        flags = tape.new(square, "bool", "visible")
        ctx.shared[ROWS] = tape.new((ctx.batch, ctx.seq, Axis("1", 1)), dtype, ROWS)
        del flags, inverted
    return x


@runs(CrossAttention)
def cross_attention(ctx: Context, m: CrossAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MllamaTextCrossAttention.forward)."""
    assert m.k is not None
    assert m.v is not None
    assert m.q_norm is not None
    assert m.k_norm is not None
    states, dim = ctx.shared[STATES], Axis("head_dim", m.head_dim)
    query = by_head(ctx.run(m.q, x), dim)
    query = ctx.run(m.q_norm, query, "q_norm")
    key, value = by_head(ctx.run(m.k, states), dim), by_head(ctx.run(m.v, states), dim)
    key = ctx.run(m.k_norm, key, "k_norm")
    key, value = ctx.remember(key, "key"), ctx.remember(value, "value")
    mask = ctx.shared[SEEN]
    if ctx.settings.attention == "eager":
        return merge(ctx, m, eager(ctx, m, query, key, value, mask=mask))
    wide = repeat_kv(key, query.shape[1]), repeat_kv(value, query.shape[1])
    out = merge(ctx, m, F.scaled_dot_product_attention(query, *wide, mask=under_autocast(mask)))
    del key, value
    return out


def by_head(x: Tensor, dim: Axis) -> Tensor:
    """x (batch, tokens, heads * head_dim) → (batch, heads, tokens, head_dim)."""
    return F.split_heads(x, (x.shape[0], Axis("heads", x.shape[-1].size // dim.size), x.shape[1], dim))


@runs(CrossLayer)
def cross_layer(ctx: Context, m: CrossLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MllamaCrossAttentionDecoderLayer.forward)."""
    first, second = m.own_weights()
    held = ctx.probabilities = []
    h = ctx.run(m.input_layernorm, x, "input_layernorm")
    h = ctx.run(m.cross_attn, h, "cross_attn")
    ctx.probabilities = None
    residual = h = x + gated(ctx, first, h)
    h = ctx.run(m.post_attention_layernorm, h, "post_attention_layernorm")
    h = ctx.run(m.mlp, h, "mlp")
    h = F.mul(h, ctx.shared[ROWS], "rows that see an image")
    h = residual + gated(ctx, second, h)
    held.clear()
    return h


@runs(SelfLayer)
def self_layer(ctx: Context, m: SelfLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; a checkpoint keeps all that its layer is handed (MllamaTextModel.forward)."""
    ctx.shared.read.update((STATES, SEEN, ROWS))
    return decoder_layer(ctx, m, x)
