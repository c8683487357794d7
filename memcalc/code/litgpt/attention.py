"""Attention: queries, keys and values by one projection, of which values stay a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memcalc.code.context import Context, runs
from memcalc.code.litgpt.lora import qkv_update
from memcalc.components import Attention, Linear
from memcalc.components.lora import LoraLinear
from memcalc.components.quantized import QuantizedLinear
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Shape, Tensor


@runs(Attention)
def attention(ctx: Context, m: Attention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (CausalSelfAttention.forward); all that it makes on the way has variables to the end."""
    assert m.k is not None
    assert m.v is not None
    dim, is_repeated = Axis("head_dim", m.head_dim), m.num_kv_heads != m.num_heads
    whole: Shape = (ctx.batch, Axis("heads", m.num_heads), ctx.seq, dim)
    few: Shape = (ctx.batch, Axis("kv_heads", m.num_kv_heads), ctx.seq, dim)
    qkv = project(ctx, (m.q, m.k, m.v), x)
    q, k, v = F.split_last(qkv, [linear.outputs for linear in (m.q, m.k, m.v)])
    query, key = F.split_heads(q, whole), F.split_heads(k, few)
    value = F.split_heads(v, few) if is_repeated else F.view(v, few)
    query, key = ctx.normed(m.q_norm, query, "q_norm"), ctx.normed(m.k_norm, key, "k_norm")
    turned = Axis("rotary", m.rotary.dim if m.rotary is not None else 0)
    roped = [turn(F.slice_last(t, turned), name) for t, name in ((query, "query"), (key, "key"))]
    query, key = (F.cat((part, F.slice_last(t, Axis("rest", m.head_dim - turned.size))), dim, f"{name}, joined") for part, t, name in
                  zip(roped, (query, key), ("query", "key"), strict=True))  # fmt: skip
    if is_repeated:
        key, value = F.repeat(key, whole, "repeated key"), F.repeat(value, whole, "repeated value")
    out = F.scaled_dot_product_attention(query, key, value)
    y = F.clone(out, "attention output in order")
    return ctx.run(m.o, F.view(y, (ctx.batch, ctx.seq, Axis("heads * head_dim", m.num_heads * m.head_dim))))


def project(ctx: Context, parts: Sequence[Linear | LoraLinear], x: Tensor) -> Tensor:
    """All three at once, with their adapter."""
    width = Axis("(heads + 2 * kv_heads) * head_dim", sum(m.outputs.size for m in parts))
    base = [m.base_layer if isinstance(m, LoraLinear) else m for m in parts]
    pretrained = ctx.run(replace(base[0], name="qkv", outputs=width), x) if isinstance(base[0], QuantizedLinear) else joined(ctx, parts, x, width)
    if not any(isinstance(m, LoraLinear) for m in parts):
        return pretrained
    update = qkv_update(ctx, parts, x, width)
    return F.add(pretrained, update, "queries, keys and values")


def joined(ctx: Context, parts: Sequence[Linear | LoraLinear], x: Tensor, width: Axis) -> Tensor:
    """The product with weights that stand in one tensor."""
    params = []
    for m in parts:
        inner = m.base_layer if isinstance(m, LoraLinear) else m
        with ctx.inside(m.name):
            path = [ctx.parameter(w) for w in inner.own_weights()] if inner is m else _below(ctx, inner)
        params += path
    y = ctx.tape.new((*x.shape[:-1], width), x.dtype, "queries, keys and values")
    kinds, shape = [(p.shape, p.dtype) for p in params], (x.shape, x.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        grads = [ctx.tape.new(*kind, "gradient of weight") if want else None for kind, want in zip(kinds, wants[1:], strict=True)]
        return (ctx.tape.new(*shape, "gradient of input of qkv") if wants[0] else None, *grads)

    saves = (tuple(params) if x.requires_grad else ()) + ((x,) if any(p.requires_grad for p in params) else ())
    ctx.tape.record(y, (x, *params), saves, backward)
    return y


def _below(ctx: Context, base: Linear) -> list[Tensor]:
    with ctx.inside("base_layer"):
        return [ctx.parameter(w) for w in base.own_weights()]


def turn(x: Tensor, name: str) -> Tensor:
    """``x * cos + rotated * sin`` with angles in fp32, which are buffers, cast back (apply_rope)."""
    half = Axis("rotary / 2", x.shape[-1].size // 2)
    angles = Tensor(x.tape, (x.shape[2], x.shape[-1]), "float32", None)
    first, second = F.slice_last(x, half), F.slice_last(x, half)
    rotated = F.cat((F.neg(second), first), x.shape[-1], "rotated half")
    turned = F.add(F.mul(x, angles, f"{name} * cos"), F.mul(rotated, angles, f"{name} * sin"), f"turned {name}")
    return F.cast(turned, x.dtype, f"{name} after rotary")
