"""BART's stacks and those of its relatives."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.mask import make_mask
from memcalc.code.transformers.t5 import MASK, STATES, eager
from memcalc.components.bart import BartAttention, BartEmbedding, BartHead, BartLayer
from memcalc.components.norm import LayerNorm
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Shape, Tensor


@runs(BartEmbedding)
def embed(ctx: Context, m: BartEmbedding, x: Tensor) -> Tensor:
    """Token ids, or the encoder's output (batch, seq, hidden) → (batch, seq, hidden) (the beginnings of BartEncoder.forward and BartDecoder.forward).

    The decoder's ids are the labels, shifted; in inference one of them. It has as many as the encoder.
    """
    table = ctx.parameter_at("shared/weight", m.table, has_gradient=not m.first)
    ids, length = x, ctx.seq
    if m.stack == "decoder":
        ctx.shared[STATES] = x
        length = ctx.seq if ctx.settings.training else Axis("1", 1)
        ids = ctx.tape.new((ctx.batch, length), "int64", "decoder_input_ids")
    h = F.scale(F.embedding(ids, table, m.width, "rows of the table"), "inputs_embeds")
    if m.stack == "decoder" and ctx.settings.attention == "eager" and ctx.settings.training:
        make_mask(ctx, MASK, h.dtype)
    positions = look_up_positions(ctx, m, length)
    for name, local in (("inputs_embeds", h), ("embed_pos", positions)):
        ctx.shared[f"{m.stack} {name}"] = Tensor(ctx.tape, local.shape, local.dtype, local.storage)  # the stack's forward has variables for them
    ctx.holds_output = False
    h = F.add(h, positions, "embeddings")
    return dropout(ctx, h if m.norm is None else ctx.run(m.norm, h, "layernorm_embedding"), m.dropout)


def look_up_positions(ctx: Context, m: BartEmbedding, length: Axis) -> Tensor:
    """Rows of the table of positions, or of a buffer."""
    ids = ctx.tape.new((length,) if m.stack == "decoder" or m.places in ("shared", "given") else (ctx.batch, length), "int64", "position_ids")
    if m.places == "buffer":
        return ctx.tape.new((ctx.batch, length, m.width), ctx.settings.dtype, "embed_pos")
    return F.embedding(ids, ctx.parameter(m.position_table), m.width, "embed_pos")


@runs(BartLayer)
def layer(ctx: Context, m: BartLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (BartEncoderLayer.forward, BartDecoderLayer.forward, and MBart's).

    A variable holds the probabilities of eager attention until others take its place.
    """
    held = ctx.probabilities = []
    h = attention_branch(ctx, m, (m.self_attn, m.self_attn_layer_norm), x, "self_attn")
    if m.encoder_attn is not None and m.encoder_attn_layer_norm is not None:
        ctx.probabilities = []
        h = attention_branch(ctx, m, (m.encoder_attn, m.encoder_attn_layer_norm), h, "encoder_attn")
    held, ctx.probabilities = ctx.probabilities, None
    residual = h
    if m.pre_norm:
        h = ctx.run(m.final_layer_norm, h, "final_layer_norm")
    h = dropout(ctx, apply_activation(ctx.run(m.fc1, h), m.activation), m.activation_dropout)
    h = F.add(residual, dropout(ctx, ctx.run(m.fc2, h), m.dropout), "sum")
    h = h if m.pre_norm else ctx.run(m.final_layer_norm, h, "final_layer_norm")
    del held
    return h


def attention_branch(ctx: Context, m: BartLayer, parts: tuple[BartAttention, LayerNorm], x: Tensor, name: str) -> Tensor:
    """Attention, its sum with x, and a norm before or after both."""
    attn, norm = parts
    h = ctx.run(norm, x, f"{name}_layer_norm") if m.pre_norm else x
    h = F.add(x, dropout(ctx, ctx.run(attn, h, name), m.dropout), f"sum after {name}")
    return h if m.pre_norm else ctx.run(norm, h, f"{name}_layer_norm")


@runs(BartAttention)
def attention(ctx: Context, m: BartAttention, x: Tensor) -> Tensor:
    """x (batch, queries, hidden) → the same (BartAttention.forward)."""
    source = ctx.shared[STATES] if m.kind == "cross" else x
    query, key, value = ctx.run(m.q, x), ctx.run(m.k, source), ctx.run(m.v, source)
    if ctx.settings.attention == "eager":
        rows, columns = by_head(m, query), by_head(m, key)
        out = eager(ctx, m, [F.split_heads(query, rows), *remembered(ctx, m, F.split_heads(key, columns), F.split_heads(value, columns))])
    else:
        heads = [F.view(t, by_head(m, t)) for t in (query, key, value)]
        out = F.scaled_dot_product_attention(heads[0], *remembered(ctx, m, heads[1], heads[2]))
    flat = F.view(out, query.shape)
    del out
    return ctx.run(m.o, flat)


def by_head(m: BartAttention, x: Tensor) -> Shape:
    """The shape of a projection's output, heads apart, as many as this rank has."""
    return (x.shape[0], Axis("num_heads", x.shape[-1].size // m.head_dim), x.shape[1], Axis("head_dim", m.head_dim))


def remembered(ctx: Context, m: BartAttention, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, in inference those in the cache; the encoder's are not kept."""
    return (key, value) if m.kind == "encoder" else (ctx.remember(key, "key"), ctx.remember(value, "value"))


@runs(BartHead)
def head(ctx: Context, m: BartHead, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, of logits in their own dtype (BartForConditionalGeneration.forward); autocast leaves the constants in fp32."""
    name = "logits + final_logits_bias"
    logits = ctx.run(m.proj, x)
    logits = F.cast(logits, "float32", name) if ctx.settings.autocast else F.add_scalar(logits, name)
    if not ctx.settings.training:
        return logits
    ctx.shared["logits"] = logits
    labels = Tensor(ctx.tape, (ctx.batch, ctx.seq), "int64", None)  # the batch's own
    return F.nll_loss(F.log_softmax(logits), labels)
