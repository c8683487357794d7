"""Attention: one fused kernel, which gets keys and values as often as there are queries; of Gemma 2 scores in full."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtune.capped import attend
from memcalc.code.torchtune.rotary import turn
from memcalc.components import Attention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Shape, Tensor


@runs(Attention)
def attention(ctx: Context, m: Attention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MultiHeadAttention.forward, Qwen3Attention.forward).

    Packed samples are kept apart by flex attention, whose compressed mask is not counted; it saves what the fused kernel does.
    """
    assert m.k is not None
    assert m.v is not None
    assert m.rotary is not None
    dim, is_repeated = Axis("head_dim", m.head_dim), 1 < m.num_kv_heads < m.num_heads
    few: Shape = (ctx.batch, ctx.seq, Axis("kv_heads", m.num_kv_heads), dim)
    whole: Shape = (ctx.batch, Axis("heads", m.num_heads), ctx.seq, dim)
    query = F.view(ctx.run(m.q, x), (ctx.batch, ctx.seq, whole[1], dim))
    query = ctx.normed(m.q_norm, query, "q_norm")
    query = turn(ctx, m.rotary, query, "query")
    key, value = ctx.run(m.k, x), ctx.run(m.v, x)
    # A sum over copies is laid out by heads, so that its gradient is copied into order; angles in fp32 do so anyway.
    key = F.split_heads(key, few) if is_repeated and m.rotary.style == "half" else F.view(key, few)
    value = F.split_heads(value, few) if is_repeated else F.view(value, few)
    key = ctx.normed(m.k_norm, key, "k_norm")
    key = turn(ctx, m.rotary, key, "key")
    if m.num_kv_heads != m.num_heads:
        key = F.repeat(key, whole, "repeated key") if is_repeated else F.expand(key, whole)
        value = F.repeat(value, whole, "repeated value") if is_repeated else F.expand(value, whole)
    query, key, value = (F.view(x, whole) for x in (query, key, value))
    out = F.scaled_dot_product_attention(query, key, value) if m.softcap is None else attend(ctx, m, query, key, value)
    return ctx.run(m.o, F.view(out, (ctx.batch, ctx.seq, Axis("heads * head_dim", m.num_heads * m.head_dim))))
