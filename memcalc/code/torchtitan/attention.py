"""Attention: queries and keys turned as complex numbers or by halves, one fused kernel."""

from __future__ import annotations

from memcalc.code import ring
from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.parallel import gather
from memcalc.code.transformers.rotary_pairs import times
from memcalc.components import Attention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


@runs(Attention)
def attention(ctx: Context, m: Attention, x: Tensor) -> Tensor:
    """x (batch, seq / tp, hidden), normalised → (batch, seq / tp, hidden) (Attention.forward of Llama 3 and Qwen3)."""
    x = gather(ctx, x, "gathered input")
    query, key, value = (ctx.run(linear, x) for linear in (m.q, m.k, m.v) if linear is not None)
    dim = Axis("head_dim", m.head_dim)
    query, key, value = (F.view(t, (ctx.batch, ctx.seq, Axis("heads", t.shape[-1].size // m.head_dim), dim)) for t in (query, key, value))
    if m.q_norm is not None and m.k_norm is not None:
        query, key = ctx.run(m.q_norm, query, "q_norm"), ctx.run(m.k_norm, key, "k_norm")
        turned = turn_halves(ctx, query, key)
    else:
        turned = turn_complex(ctx, query, key)
    del query, key
    out = fused(ctx, *turned, value)
    del turned, value
    return ctx.run(m.o, F.view(out, (ctx.batch, ctx.seq, Axis("heads * head_dim", out.shape[2].size * m.head_dim))))


def complex_angles(ctx: Context, x: Tensor) -> Tensor:
    """Those of each token, a buffer of the model."""
    return Tensor(ctx.tape, (ctx.seq, Axis("head_dim/2", x.shape[-1].size // 2), Axis("real and imaginary", 2)), "float32", None)


def turn_complex(ctx: Context, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Both in fp32, times complex angles, which are a buffer; cast back once both are there (apply_rotary_emb of Llama 3)."""
    dtype, angles = query.dtype, complex_angles(ctx, query)
    wide = [F.cast(x, "float32", f"{name} in fp32") for x, name in ((query, "query"), (key, "key"))]
    products = [times(x, angles) for x in wide]
    turned = [F.cast(x, dtype, f"{name} after rotary") for x, name in zip(products, ("query", "key"), strict=True)]
    return turned[0], turned[1]


def turned(ctx: Context, x: Tensor, name: str) -> Tensor:
    """One alone, by the same angles (apply_rotary_emb of DeepSeek-V3)."""
    wide = F.cast(x, "float32", f"{name} in fp32")
    product = times(wide, complex_angles(ctx, x))
    return F.cast(product, x.dtype, f"{name} after rotary")


def turn_halves(ctx: Context, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """``x * cos + rotate_half(x) * sin`` in the dtype of x, with angles of a buffer, cast to it here or before (apply_rotary_emb of Qwen3)."""
    dim = query.shape[-1]
    half = Axis("head_dim/2", dim.size // 2)
    shape = (Axis("one", 1), ctx.seq, Axis("one", 1), dim)
    cast = ctx.selection.beside if ctx.selection is not None else ()
    if cast:
        cos, sin = (Tensor(ctx.tape, shape, query.dtype, cast[0].storage) for _ in range(2))
    else:
        cos, sin = (ctx.tape.new(shape, query.dtype, name) for name in ("cos", "sin"))
    turned = []
    for x, name in ((query, "query"), (key, "key")):
        first, second = F.slice_last(x, half), F.slice_last(x, half)
        rotated = F.cat((F.neg(second), first), dim, "rotated half")
        turned.append(F.add(F.mul(x, cos, f"{name} * cos"), F.mul(rotated, sin, f"{name} * sin"), f"{name} after rotary"))
        del first, second, rotated
    return turned[0], turned[1]


def fused(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The flash kernel on (batch, seq, heads, head_dim): saves queries, keys, values, output and the fp32 log-sum-exp of each row.

    Over context-parallel ranks it is torch's ring, of which a selective checkpoint keeps the outputs likewise.
    """
    tape, cp = ctx.tape, ctx.settings.cp

    def made() -> tuple[Tensor, ...]:
        if ctx.has_cp:
            return ring.pass_on(tape, cp, query, key, value)
        lse = (ctx.batch, query.shape[2], ctx.seq)
        return tape.new((*query.shape[:-1], value.shape[-1]), query.dtype, "attention output"), tape.new(lse, "float32", "log-sum-exp")

    chosen = ctx.selection
    out, lse = made() if chosen is None or not chosen.selects else chosen.outputs(made, 2)

    def backward(wants: tuple[bool, ...], g: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        if ctx.has_cp:
            return ring.pass_back(tape, cp, query, key, value)
        return tuple(like(t, f"gradient of {n}") for t, n in ((query, "query"), (key, "key"), (value, "value")))

    tape.record(out, (query, key, value), (query, key, value, out, lse), backward)
    return out
