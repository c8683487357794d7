"""Grouped-query attention: one product for queries, keys and values, fused rotary positions, one attention kernel.

Source: megatron/core/transformer/attention.py (SelfAttention) and models/common/embeddings/rope_utils.py.
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import lora
from memcalc.code.megatron.core_attention import core_attention
from memcalc.components import Attention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor
from memcalc.units import ceil_div


@runs(Attention)
def attention(ctx: Context, m: Attention, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden), normalised → (sequence, batch, hidden), without the output's bias."""
    query, key, value = project(ctx, m, x)
    del x
    if m.q_norm is not None:
        query = ctx.run(m.q_norm, query, "q_norm")
    if m.k_norm is not None:
        key = ctx.run(m.k_norm, key, "k_norm")
    if m.rotary is not None:
        query, key = rotate(query, "query"), rotate(key, "key")
    out = core_attention(ctx, query, key, value, dropout=m.dropout)
    del query, key, value
    return lora.row(ctx, out, m.o, "attention branch")


def project(ctx: Context, m: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (sequence, batch, heads, head_dim), keys and values (sequence, batch, kv_heads, head_dim), as views of one product where they can be.

    Where there are fewer KV heads than tensor-parallel ranks, each rank's part of the product is gathered, and the group that the rank
    works on is cut out; weights are cut evenly all the same. Queries of several heads to a group are copied into their order.
    """
    tp = ctx.settings.tp
    linears = [m.q] if m.k is None or m.v is None else [m.q, m.k, m.v]
    dim = Axis("head_dim", m.head_dim)
    mixed = Axis("(heads + 2 * kv_heads) * head_dim / tp", ceil_div((m.num_heads + 2 * m.num_kv_heads) * m.head_dim, tp))
    qkv = lora.column(ctx, x, linears, mixed, "query, key and value")
    heads = m.num_heads // tp
    shared = isinstance(tp, int) and tp > m.num_kv_heads
    if shared:
        qkv = gather_last(qkv, Axis("(heads + 2 * kv_heads) * head_dim", (m.num_heads + 2 * m.num_kv_heads) * m.head_dim))
    kv_heads = Axis("kv_heads", 1 if shared else m.num_kv_heads // tp)
    rows = qkv.shape[:-1]
    query, key, value = split_mixed(qkv, [(*rows, Axis("heads", heads), dim), (*rows, kv_heads, dim), (*rows, kv_heads, dim)])
    if m.num_heads != m.num_kv_heads and not (isinstance(kv_heads.size, int) and kv_heads.size == 1):
        query = F.clone(query, "query in order")
    return query, key, value


def split_mixed(mixed: Tensor, shapes: list[tuple[Axis, ...]]) -> list[Tensor]:
    """Views of one tensor; backward concatenates their gradients."""
    parts = [Tensor(mixed.tape, shape, mixed.dtype, mixed.storage) for shape in shapes]
    whole, dtype, tape = mixed.shape, mixed.dtype, mixed.tape
    tape.record(parts, (mixed,), (), lambda wants, *gs: (tape.new(whole, dtype, "gradient of query, key and value"),))
    return parts


def gather_last(x: Tensor, axis: Axis) -> Tensor:
    """All ranks' columns on every rank; the gradient is reduced and scattered (all_gather_last_dim_from_tensor_parallel_region)."""
    tape, part = x.tape, x.shape
    gathered = tape.new((*x.shape[:-1], axis), x.dtype, "gathered query, key and value")
    out = like(gathered, "gathered query, key and value in order")
    del gathered
    tape.record(out, (x,), (), lambda wants, g: (g.tape.new(part, g.dtype, "part of gradient"),))
    return out


def rotate(x: Tensor, name: str) -> Tensor:
    """One kernel that keeps the angles alone, which are resident (fused_apply_rotary_pos_emb)."""
    out = like(x, f"{name} after rotary")
    x.tape.record(out, (x,), (), lambda wants, g: (like(g, f"gradient of rotary {name}"),))
    return out
