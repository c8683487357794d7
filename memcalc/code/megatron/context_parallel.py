"""Attention over context-parallel ranks: keys and values in a ring, gathered, or heads for sequence (Ulysses, Jacobs et al. 2023).

Source: transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py (AttnFuncWithCPAndKVP2P, …KVAllGather, …QKVOA2A).
"""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context
from memcalc.code.megatron.kernels import flatten, kernel
from memcalc.code.megatron.options import options
from memcalc.specs.model import Axis
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Shape, Tensor


def over_ranks(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(sequence / cp, batch, heads, head_dim) → (sequence / cp, batch, heads * head_dim)."""
    how = {"p2p": ring, "all_gather": gathered, "a2a": ulysses}[options(ctx).cp_comm_type]
    return flatten(how(ctx, query, key, value))


def grown(shape: Shape, axis: int, times: Any, label: str) -> Shape:
    """A shape with one axis multiplied."""
    axes = list(shape)
    axes[axis] = Axis(f"{axes[axis].name} * {label}", axes[axis].size * times)
    return tuple(axes)


def ring(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Keys and values pass from rank to rank. Each step has its own receive buffer and output, all there until the outputs are put together.

    Under a causal mask the last rank, which is the most loaded, works on all of its queries in every step. What is saved is as large
    as on one rank; backward passes keys, values and their gradients on in two buffers.
    """
    tape, cp = ctx.tape, ctx.settings.cp
    buffers = [tape.new(grown(t.shape, 0, cp, "cp"), t.dtype, f"{n} of each step") for t, n in ((key, "keys"), (value, "values"))]
    outs = tape.new((Axis("cp", cp), *query.shape[:-1], value.shape[-1]), query.dtype, "output of each step")
    sums = tape.new((Axis("cp", cp), *query.shape[:-1]), "float32", "log-sum-exp of each step")
    out = tape.new((*query.shape[:-1], value.shape[-1]), query.dtype, "attention output")
    lse = tape.new(query.shape[:-1], "float32", "log-sum-exp")
    kept = [like(key, "key of the last step"), like(value, "value of the last step")]
    del buffers, outs, sums

    def backward(wants: tuple[bool, ...], g: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        passed = [
            tape.new((Axis("2 buffers", 2), Axis("with gradient", 2), *t.shape), t.dtype, f"{n} in the ring") for t, n in ((key, "key"), (value, "value"))
        ]
        of_query = like(query, "gradient of query")
        step = [tape.new(query.shape, "float32", "gradient of query in fp32"), *(like(t, "gradient of one step") for t in (query, key, value))]
        del step
        made = (of_query, like(key, "gradient of key"), like(value, "gradient of value"))
        del passed
        return made

    tape.record(out, (query, key, value), (query, *kept, out, lse), backward)
    return out


def gathered(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Keys and values of all ranks are gathered, in forward and again in backward; what is saved is this rank's own."""
    tape, cp = ctx.tape, ctx.settings.cp
    wholes = [(grown(t.shape, 0, cp, "cp"), t.dtype) for t in (key, value)]
    buffers = [tape.new(*whole, f"gathered {n}") for whole, n in zip(wholes, ("key", "value"), strict=True)]
    halves = tape.new((*query.shape[:-1], value.shape[-1]), query.dtype, "output of each half")
    out = tape.new((*query.shape[:-1], value.shape[-1]), query.dtype, "attention output")
    lse = tape.new(query.shape[:-1], "float32", "log-sum-exp")
    del buffers, halves

    def backward(wants: tuple[bool, ...], g: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        again = [tape.new(*whole, f"gathered {n}") for whole, n in zip(wholes, ("key", "value"), strict=True)]
        totals = [tape.new(*whole, f"gradient of gathered {n}") for whole, n in zip(wholes, ("key", "value"), strict=True)]
        of_query = like(query, "gradient of query")
        step = tape.new(query.shape, "float32", "gradient of query in fp32")
        del step, again
        made = (of_query, like(key, "gradient of key"), like(value, "gradient of value"))
        del totals
        return made

    tape.record(out, (query, key, value), (query, key, value, out, lse), backward)
    return out


def ulysses(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Each rank gets the whole sequence of some heads, and gives it back after. The kernel saves what came, the next layer what went back."""
    query, key, value = (exchange(ctx, x, n, heads=True) for x, n in ((query, "query"), (key, "key"), (value, "value")))
    out = kernel(query, key, value)
    del query, key, value
    return exchange(ctx, out, "attention output", heads=False)


def exchange(ctx: Context, x: Tensor, name: str, *, heads: bool) -> Tensor:
    """An all-to-all between sequence and heads: as many elements, after one copy into the order of the ranks."""
    tape, cp, back = ctx.tape, ctx.settings.cp, x.shape
    ordered = like(x, f"{name} in the order of ranks")
    seq, batch, n, dim = x.shape
    shape = (regrouped(seq, cp, whole=heads), batch, regrouped(n, cp, whole=not heads), dim)
    out = tape.new(shape, x.dtype, f"{name} {'of some heads' if heads else 'of all heads'}")
    del ordered

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        ordered = like(g, f"gradient of {name} in the order of ranks")
        made = tape.new(back, g.dtype, f"gradient of {name}")
        del ordered
        return (made,)

    tape.record(out, (x,), (), backward)
    return out


def regrouped(axis: Axis, cp: Any, *, whole: bool) -> Axis:
    """An axis grown or cut by the context-parallel degree."""
    return Axis(f"{axis.name} * cp", axis.size * cp) if whole else Axis(f"{axis.name} / cp", axis.size // cp)
