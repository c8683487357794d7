"""Collectives, as what they allocate: out-of-place ones (torch.distributed._functional_collectives) make a new tensor."""

from __future__ import annotations

from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Axis, Tensor


def all_reduce(x: Tensor, name: str = "all-reduced") -> Tensor:
    """The sum over the group, in a new tensor. The gradient passes unchanged: every rank has the whole of it."""
    out = like(x, name)
    x.tape.record(out, (x,), (), lambda wants, g: (g,))
    return out


def reduce_gradient(x: Tensor) -> Tensor:
    """x itself; its gradient, of which each rank has a part, is all-reduced into a new tensor."""
    y = Tensor(x.tape, x.shape, x.dtype, x.storage)
    x.tape.record(y, (x,), (), lambda wants, g: (like(g, "all-reduced gradient"),))
    return y


def all_gather_last(x: Tensor, axis: Axis) -> Tensor:
    """The whole last axis on every rank: one buffer for the collective, one for the parts in order. Backward copies this rank's part."""
    gathered = x.tape.new((*x.shape[:-1], axis), x.dtype, "gathered")
    out = like(gathered, "gathered in order")
    del gathered
    part, dtype = x.shape, x.dtype
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(part, dtype, "part of gradient"),))
    return out


def all_to_all(x: Tensor, rows: Axis, name: str) -> Tensor:
    """Rows to other ranks for rows from them (``all_to_all_single``): a new tensor, and another one for the gradient."""
    out = x.tape.new((rows, *x.shape[1:]), x.dtype, name)
    back = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(back, g.dtype, f"gradient of {name}, sent back"),))
    return out
