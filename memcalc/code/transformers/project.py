"""Queries, keys and values from the projections, as each layout holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memcalc.code.context import Context
from memcalc.components import Attention, LayerNorm, RMSNorm
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.routing import clamp
from memcalc.tape.tensor import Shape, Tensor

QKV = tuple[Tensor, Tensor, Tensor]


def project(ctx: Context, m: Attention, x: Tensor) -> QKV:
    """Queries (batch, heads, seq, head_dim), keys and values (batch, kv_heads, seq, head_dim), not yet normalised."""
    shapes = head_shapes(ctx, m)
    if m.k is None or m.v is None:
        fused = ctx.run(m.q, x)
        return LAYOUTS[m.layout](clamp(fused, "clamped") if m.clamped else fused, shapes)
    if "qkv" in ctx.settings.lora_kernels and not m.clamped:
        from memcalc.code.transformers import lora_kernels

        if lora_kernels.are_fused(ctx, "qkv", m.q, m.k, m.v):
            query, key, value = lora_kernels.projections(ctx, m, x)
            if over_projection(m.q_norm, m):
                query, key = ctx.normed(m.q_norm, query, "q_norm"), ctx.normed(m.k_norm, key, "k_norm")
            return F.split_heads(query, shapes[0]), F.split_heads(key, shapes[1]), F.split_heads(value, shapes[1])
    if not over_projection(m.q_norm, m) and not m.clamped:
        query = ctx.run(m.q, x)
        query = F.split_heads(F.scale(query, "query scaled") if m.scaled_query else query, shapes[0])
        key = F.split_heads(ctx.run(m.k, x), shapes[1])
        key = F.scale(key, "key scaled") if m.scaled_key else key
        return query, key, F.split_heads(ctx.run(m.v, x), shapes[1])
    query = ctx.normed(m.q_norm, ctx.run(m.q, x), "q_norm")
    key = ctx.normed(m.k_norm, ctx.run(m.k, x), "k_norm")
    value = ctx.run(m.v, x)
    if m.clamped:
        query, key, value = (clamp(y, "clamped", in_place=True) for y in (query, key, value))
    query = F.split_heads(query, shapes[0])
    return query, F.split_heads(key, shapes[1]), F.split_heads(value, shapes[1])


def head_shapes(ctx: Context, m: Attention) -> tuple[Shape, Shape]:
    """The shapes of queries, and of keys and values, on this rank."""
    tp, dim = ctx.settings.tp, Axis("head_dim", m.head_dim)
    return (ctx.batch, Axis("heads", m.num_heads // tp), ctx.seq, dim), (ctx.batch, Axis("kv_heads", m.num_kv_heads // tp), ctx.seq, dim)


def over_projection(norm: RMSNorm | LayerNorm | None, m: Attention) -> bool:
    """Whether a norm of queries spans all heads at once."""
    return norm is not None and norm.width.size != m.head_dim


def side_by_side(shape: Shape) -> Axis:
    """All heads of a tensor in one axis."""
    return Axis(f"{shape[1].name} * head_dim", shape[1].size * shape[3].size)


def split(fused: Tensor, shapes: tuple[Shape, Shape]) -> QKV:
    """Split at once: one concatenation in backward (GPT2Attention.forward)."""
    q, k, v = F.split_last(fused, [side_by_side(s) for s in (shapes[0], shapes[1], shapes[1])])
    key, value = F.split_heads(k, shapes[1]), F.split_heads(v, shapes[1])
    return F.split_heads(q, shapes[0]), key, value


def sliced(fused: Tensor, shapes: tuple[Shape, Shape]) -> QKV:
    """Cut out one by one: three gradients of the whole, summed (Phi3Attention.forward)."""
    q, k, v = (F.slice_last(fused, side_by_side(s)) for s in (shapes[0], shapes[1], shapes[1]))
    query = F.split_heads(q, shapes[0])
    key = F.split_heads(k, shapes[1])
    return query, key, F.split_heads(v, shapes[1])


def thirds(fused: Tensor, shapes: tuple[Shape, Shape]) -> QKV:
    """Three views of one tensor: one stacked gradient (ModernBertAttention.forward)."""
    q, k, v = F.split_last(fused, [side_by_side(s) for s in (shapes[0], shapes[1], shapes[1])])
    return F.view(q, shapes[0]), F.view(k, shapes[1]), F.view(v, shapes[1])


def per_head(fused: Tensor, shapes: tuple[Shape, Shape]) -> QKV:
    """Heads first, then split in each: the concatenated gradient is copied into order once (GPTNeoXAttention.forward)."""
    (batch, heads, seq, dim), _ = shapes
    whole = F.split_heads(fused, (batch, heads, seq, Axis("3 * head_dim", 3 * dim.size)))
    q, k, v = F.split_last(whole, (dim, dim, dim))
    return q, k, v


def indexed(fused: Tensor, shapes: tuple[Shape, Shape]) -> QKV:
    """Indexed in each head: three gradients of the whole, summed (BloomAttention._reshape)."""
    return F.narrow(fused, shapes[0]), F.narrow(fused, shapes[1]), F.narrow(fused, shapes[1])


def blocks(fused: Tensor, shapes: tuple[Shape, Shape]) -> QKV:
    """Split in each of four blocks, then copied into heads (CodeGenAttention.forward)."""
    part = Axis("heads * head_dim", fused.shape[-1].size // 3)
    q, v, k = F.split_last(fused, (part, part, part))
    query = F.clone(F.view(q, shapes[0]), "query in order")
    key = F.clone(F.view(k, shapes[1]), "key in order")
    return query, key, F.clone(F.view(v, shapes[1]), "value in order")


def shared(fused: Tensor, shapes: tuple[Shape, Shape]) -> QKV:
    """Split at once; the one key and value need no order of heads (GPTBigCodeAttention.forward)."""
    q, k, v = F.split_last(fused, [side_by_side(s) for s in (shapes[0], shapes[1], shapes[1])])
    return F.split_heads(q, shapes[0]), F.view(k, shapes[1]), F.view(v, shapes[1])


LAYOUTS: dict[str, Callable[[Tensor, Any], QKV]] = {
    "split": split,
    "sliced": sliced,
    "thirds": thirds,
    "per_head": per_head,
    "indexed": indexed,
    "blocks": blocks,
    "shared": shared,
}
"""How a fused projection is taken apart, by the name of its layout."""
