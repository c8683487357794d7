"""A stretch that runs again in backward: its inputs are kept, all else is made anew; with reentrance, as a graph of its own, or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memcalc.code.context import Context
from memcalc.tape.frame import framed
from memcalc.tape.tape import Edge, Leaf
from memcalc.tape.tensor import Tensor

Function = Callable[..., "Tensor | tuple[Tensor, ...]"]


def checkpoint(ctx: Context, function: Function, *inputs: Tensor, first: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """The one output, which stays, of a stretch with reentrance.

    Args:
        ctx: of the run.
        function: what runs twice.
        inputs: kept for the second time.
        first: what its last operators make of the gradient before one of them asks for what was saved, which makes it run again.
    """
    tape = ctx.tape
    if not tape.grad_enabled:
        return _one(function(*inputs))
    with tape.no_grad():
        out = _one(function(*inputs))
    place = ctx.place()

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        since = len(tape.nodes)
        early = None if first is None else first(g)
        again = leaves(saved, wants)
        with ctx.at(place), tape.enable_grad():
            made = _one(function(*again))
        edge: Edge = (made.node, made.index) if made.node is not None else None
        output = made if ctx.settings.code == "megatron" else None  # a variable of CheckpointFunction.backward (megatron/core/tensor_parallel/random.py)
        del made, early
        with ctx.at(place):
            tape.backward(edge, [g], since=since)
        del output
        return gradients(again)

    tape.record(out, inputs, inputs, backward)
    return out


def forget(ctx: Context, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """function(x), of whose graph nothing is kept but its input (without reentrance: its operators stand in the one graph)."""
    place = ctx.place()

    def again() -> None:
        with ctx.at(place):
            function(x)

    with framed(ctx.tape, again):
        return function(x)


def leaves(inputs: Sequence[Tensor], wants: Sequence[bool]) -> list[Tensor]:
    """The inputs cut off from the graph (torch/utils/checkpoint.py, detach_variable)."""
    found = []
    for x, wanted in zip(inputs, wants, strict=True):
        leaf = Tensor(x.tape, x.shape, x.dtype, x.storage)
        if wanted:
            leaf.requires_grad, leaf.node = True, Leaf("gradient of checkpointed input", keeps=True)
        found.append(leaf)
    return found


def gradients(found: list[Tensor]) -> tuple[Tensor | None, ...]:
    """What has arrived at leaves."""
    return tuple(leaf.node.grads[0] if isinstance(leaf.node, Leaf) else None for leaf in found)


def _one(made: Tensor | tuple[Tensor, ...]) -> Tensor:
    return made if isinstance(made, Tensor) else made[0]
