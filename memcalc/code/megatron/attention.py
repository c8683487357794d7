"""Grouped-query attention: one product for queries, keys and values, fused rotary positions, one attention kernel.

Source: megatron/core/transformer/attention.py (SelfAttention) and models/common/embeddings/rope_utils.py.
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import lora
from memcalc.code.megatron.core_attention import core_attention
from memcalc.code.megatron.options import options
from memcalc.components import Attention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor
from memcalc.units import ceil_div


@runs(Attention)
def attention(ctx: Context, m: Attention, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden), normalised → (sequence, batch, hidden), without the output's bias."""
    made = project(ctx, m, x)
    del x
    query, key, value = made
    if m.q_norm is not None:
        query = ctx.run(m.q_norm, query, "q_norm")
    if m.k_norm is not None:
        key = ctx.run(m.k_norm, key, "k_norm")
    made = (query, key, value)  # the forward has all three as they were before rotary positions until it returns (qkv_output)
    if m.rotary is not None:
        query, key = rotate(ctx, query, "query"), rotate(ctx, key, "key")
    out = lora.row(ctx, core_attention(ctx, query, key, value, dropout=m.dropout), m.o, "attention branch")
    del made
    return out


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


def rotate(ctx: Context, x: Tensor, name: str) -> Tensor:
    """One kernel that keeps the angles alone, which are resident (fused_apply_rotary_pos_emb), or operator by operator."""
    if not options(ctx).rope_fusion:
        return turn(ctx, x, name)
    out = like(x, f"{name} after rotary")
    x.tape.record(out, (x,), (), lambda wants, g: (like(g, f"gradient of rotary {name}"),))
    return out


def turn(ctx: Context, x: Tensor, name: str) -> Tensor:
    """``t * cos + rotate_half(t) * sin``, put together with a rest of no width, whose gradient is zeros (_apply_rotary_pos_emb_bshd). Keeps cos and sin."""
    tape, dim = x.tape, x.shape[-1]
    half = (*x.shape[:-1], Axis("head_dim / 2", dim.size // 2))
    with tape.no_grad():
        cos, sin = (F.cast(F.scale(tape.new((ctx.seq, dim), "float32", f"{n} in fp32"), f"scaled {n}"), x.dtype, n) for n in ("cos", "sin"))
    first, second = like(x, "product with cos"), tape.new(half, x.dtype, "negative half")
    turned = like(x, "halves exchanged")
    del second
    second = like(x, "product with sin")
    del turned
    total = like(x, "sum of products")
    del first, second
    out = like(x, f"{name} after rotary")
    del total

    def backward(wants: tuple[bool, ...], g: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor]:
        by_sin, part = like(g, "gradient times sin"), tape.new(half, g.dtype, "negative half")
        exchanged = like(g, "gradient of halves exchanged")
        del by_sin, part
        by_cos = like(g, "gradient times cos")
        total = like(g, "sum of gradients")
        del exchanged, by_cos
        rest = like(g, "zeros for the rest")
        made = like(g, f"gradient of rotary {name}")
        del total, rest
        return (made,)

    tape.record(out, (x,), (cos, sin), backward)
    return out
