"""Attention whose output is gated."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import attend
from memcalc.code.transformers.liger import in_order
from memcalc.code.transformers.project import head_shapes
from memcalc.code.transformers.rotary import rotate
from memcalc.components.gated_attention import GatedAttention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(GatedAttention)
def gated_attention(ctx: Context, m: GatedAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Qwen3NextAttention.forward, Qwen3_5Attention.forward). Heads are normalised before they are transposed."""
    assert m.k is not None
    assert m.v is not None
    assert m.q_norm is not None
    assert m.k_norm is not None
    assert m.rotary is not None
    (batch, heads, seq, dim), few = head_shapes(ctx, m)
    wide = F.view(ctx.run(m.q, x), (batch, seq, heads, Axis("2 * head_dim", 2 * dim.size)))
    query, gate = F.split_last(wide, (dim, dim))
    gate = F.clone(gate, "gate in order")
    del wide
    query = ctx.run(m.q_norm, in_order(ctx, query, "query in order"), "q_norm")
    key = ctx.run(m.k_norm, F.view(ctx.run(m.k, x), (batch, seq, few[1], dim)), "k_norm")
    value = F.split_heads(ctx.run(m.v, x), few)
    query, key = rotate(ctx, m.rotary, F.view(query, (batch, heads, seq, dim)), F.view(key, few))
    key, value = ctx.remember(key, "key", window=m.window), ctx.remember(value, "value", window=m.window)
    out = attend(ctx, m, query, key, value)
    flat = (batch, seq, Axis("heads * head_dim", heads.size * dim.size))
    out = F.mul(F.view(out, flat), F.keeps_result(F.view(gate, flat), "sigmoid of gate"), "gated output")
    return ctx.run(m.o, out)
