"""Llama 4's text model."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import eager, merge, repeat_kv
from memcalc.code.transformers.expert_parallel import refuse_spread
from memcalc.code.transformers.mask import mask_name
from memcalc.code.transformers.project import head_shapes
from memcalc.code.transformers.rotary_pairs import times
from memcalc.code.transformers.router import logits_of, top_k_axis
from memcalc.components.llama4 import InputScaledMoE, Llama4Attention, Llama4Layer
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.matmul import cast_weight
from memcalc.tape.tensor import Tensor


@runs(Llama4Layer)
def llama4_layer(ctx: Context, m: Llama4Layer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; what the attention gave is held to the end (Llama4TextDecoderLayer.forward)."""
    assert m.input_layernorm is not None
    assert m.post_attention_layernorm is not None
    assert m.mlp is not None
    probabilities = ctx.probabilities = []
    h = ctx.run(m.input_layernorm, x, "input_layernorm")
    mixed = ctx.run(m.self_attn, h, "self_attn")
    ctx.probabilities = None
    h = x + mixed
    residual = h
    h = ctx.run(m.post_attention_layernorm, h, "post_attention_layernorm")
    h = residual + ctx.run(m.mlp, h, "feed_forward")
    del mixed, probabilities
    return h


@runs(Llama4Attention)
def llama4_attention(ctx: Context, m: Llama4Attention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; heads are turned and normalised before they are put in order (Llama4TextAttention.forward)."""
    assert m.k is not None
    assert m.v is not None
    (batch, heads, seq, dim), (_, kv_heads, _, _) = head_shapes(ctx, m)
    query, key = F.view(ctx.run(m.q, x), (batch, seq, heads, dim)), F.view(ctx.run(m.k, x), (batch, seq, kv_heads, dim))
    value = F.split_heads(ctx.run(m.v, x), (batch, kv_heads, seq, dim))
    if m.rotary is not None:
        query, key = turn(ctx.shared["complex angles"], query, key)
    if m.l2_norm is not None:
        query = ctx.run(m.l2_norm, query, "qk_norm")
        key = ctx.run(m.l2_norm, key, "qk_norm")
    positions = None
    if m.tempered:
        positions = ctx.tape.new((ctx.seq,), "int64", "positions")
        scales = F.view(ctx.tape.new((ctx.seq,), "float32", "scales"), (ctx.seq, Axis("1", 1), Axis("1", 1)))
        query = F.cast(F.mul(query, scales, "scaled query"), query.dtype, "query")
    query, key = F.view(query, (batch, heads, seq, dim)), F.view(key, (batch, kv_heads, seq, dim))
    key, value = ctx.remember(key, "key", window=m.window), ctx.remember(value, "value", window=m.window)
    out = merge(ctx, m, attend(ctx, m, query, key, value))
    del positions
    return out


def turn(angles: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Complex products of copies in fp32, both cast back at the end (apply_rotary_emb)."""
    wide = F.cast(query, "float32", "query in fp32"), F.cast(key, "float32", "key in fp32")
    turned = times(wide[0], angles), times(wide[1], angles)
    return F.cast(turned[0], query.dtype, "turned query"), F.cast(turned[1], key.dtype, "turned key")


def attend(ctx: Context, m: Llama4Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Eager, or one kernel; masks of chunks are made for each sequence (sdpa_attention_forward)."""
    mask = ctx.shared.get(mask_name(m.window))
    if ctx.settings.attention == "eager":
        return eager(ctx, m, query, key, value, mask=mask)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    bias = ctx.tape.new((ctx.batch, *mask.shape[-2:]), query.dtype, "mask")
    key, value = repeat_kv(key, query.shape[1]), repeat_kv(value, query.shape[1])
    return F.scaled_dot_product_attention(query, key, value, mask=bias)


@runs(InputScaledMoE)
def input_scaled_moe(ctx: Context, m: InputScaledMoE, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same: every token is repeated for every expert, scaled by its score (Llama4TextMoe.forward)."""
    refuse_spread(ctx)
    assert m.shared is not None
    tokens, hidden, count = Axis("tokens", ctx.batch.size * ctx.seq.size), x.shape[-1], m.experts.count
    flat = F.view(x, (tokens, hidden))
    with ctx.inside(m.gate.module_name):
        logits = logits_of(ctx, m.gate, flat)
        best, indices = routing.topk(logits, top_k_axis(m.gate))
        scores = routing.scatter(best, indices, logits.shape, "scores of the chosen")
        scores = F.cast(F.keeps_result(F.cast(scores, "float32"), "router scores in fp32"), logits.dtype, "router scores")
        del best, indices
    rows = (count, tokens, hidden)
    routed = F.repeat(expand_rows(flat, rows), rows, "tokens for each expert")
    routed = F.mul(routed, F.clone(F.view(scores, (count, tokens, Axis("1", 1))), "scores by expert"), "scaled tokens")
    with ctx.inside("experts"):
        answers = experts(ctx, m, routed)
    out = ctx.run(m.shared, flat, m.shared_name)
    total = sum_of_experts(answers, (tokens, hidden))
    out = routing.add_in_place(out, total)
    del total, routed, answers, scores, logits
    return F.view(out, x.shape)


def expand_rows(flat: Tensor, rows: tuple[Axis, Axis, Axis]) -> Tensor:
    """The tokens seen once more by an axis of one, so that repeating them adds up going back."""
    return F.view(flat, (Axis("1", 1), *rows[1:]))


def experts(ctx: Context, m: InputScaledMoE, x: Tensor) -> Tensor:
    """Batched products, one batch an expert (Llama4TextExperts.forward)."""
    e = m.experts
    up_weight, down_weight = (cast_weight(ctx.parameter(w), ctx.weight_path(w)) for w in e.own_weights())
    both = F.matmul(x, up_weight, (*x.shape[:2], up_weight.shape[2]), "gate_up")
    half = Axis(e.intermediate.name, both.shape[-1].size // 2)
    gate, up = F.split_last(both, (half, half))
    hidden = F.mul(up, apply_activation(gate, e.activation), "up * gate")
    return F.matmul(hidden, down_weight, x.shape, "output of experts")


def sum_of_experts(x: Tensor, shape: tuple[Axis, Axis]) -> Tensor:
    """``x.sum(dim=0)``, whose expanded gradient is copied out for each expert."""
    out = x.tape.new(shape, x.dtype, "sum over experts")
    whole = x.shape
    x.tape.record(out, (x,), (), lambda _, g: (g.tape.new(whole, g.dtype, "gradient of each expert"),))
    return out
