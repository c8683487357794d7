"""Recomputing a part of a layer: its inputs are kept, and it runs again in backward (megatron/core/tensor_parallel/random.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memcalc.code.context import Context
from memcalc.tape.tape import Edge, Leaf, Node
from memcalc.tape.tensor import Storage, Tensor

Function = Callable[..., "Tensor | tuple[Tensor, ...]"]


def checkpoint(ctx: Context, function: Function, *inputs: Tensor) -> Tensor:
    """``tensor_parallel.checkpoint``: one output, which stays.

    Args:
        ctx: of the run.
        function: what runs twice.
        inputs: kept for the second time.
    """
    tape = ctx.tape
    if not tape.grad_enabled:
        return _one(function(*inputs))
    with tape.no_grad():
        out = _one(function(*inputs))
    place = ctx.place()

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        since = len(tape.nodes)
        leaves = _leaves(saved, wants)
        with ctx.at(place), tape.enable_grad():
            again = _one(function(*leaves))
        edge: Edge = (again.node, again.index) if again.node is not None else None
        del again
        with ctx.at(place):
            tape.backward(edge, [g], since=since)
        return _gradients(leaves)

    tape.record(out, inputs, inputs, backward)
    return out


class WithoutOutput:
    """``CheckpointWithoutOutput``: outputs are dropped once their user has run, though it saves them, and are there again before it runs back."""

    def __init__(self, ctx: Context) -> None:
        self.ctx, self.tape = ctx, ctx.tape
        self.dropped: list[Storage] = []
        self.graph: tuple[list[Node], list[Tensor], tuple[Tensor, ...]] | None = None

    def run(self, function: Function, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs of the function."""
        tape = self.tape
        if not tape.grad_enabled:
            return _all(function(*inputs))
        with tape.no_grad():
            outs = _all(function(*inputs))
        self.place, self.function = self.ctx.place(), function
        self.dropped = [t.storage for t in outs if t.storage is not None]

        def backward(wants: tuple[bool, ...], *grads_and_saved: Tensor) -> tuple[Tensor | None, ...]:
            assert self.graph is not None
            nodes, leaves, outs = self.graph
            self.graph = None
            since = len(tape.nodes)
            tape.nodes.extend(nodes)
            del nodes
            edges: list[Edge] = [(t.node, t.index) if t.node is not None else None for t in outs]
            with self.ctx.at(self.place):
                for edge, g in zip(edges[1:], grads_and_saved[1 : len(edges)], strict=True):
                    tape.deliver(edge, [g])
                tape.backward(edges[0], [grads_and_saved[0]], since=since)
            return _gradients(leaves)

        self.inputs = inputs
        tape.record(outs, inputs, inputs, backward)
        return outs

    def drop(self, user: Tensor) -> Tensor:
        """The user's output, after which the outputs of the function are gone until its gradient arrives."""
        if not self.dropped or not user.requires_grad:
            return user
        for storage in self.dropped:
            storage.drop()
        out = Tensor(user.tape, user.shape, user.dtype, user.storage)
        self.tape.record(out, (user,), (), self._restore)
        return out

    def _restore(self, wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        """The function runs again; its outputs take the place of those that were dropped."""
        leaves = _leaves(self.inputs, [t.requires_grad for t in self.inputs])
        self.inputs = ()
        since = len(self.tape.nodes)
        with self.ctx.at(self.place), self.tape.enable_grad():
            outs = _all(self.function(*leaves))
        for storage, again in zip(self.dropped, outs, strict=True):
            if again.storage is not None:
                storage.take_over(again.storage)
        self.dropped = []
        self.graph = (self.tape.nodes[since:], leaves, outs)
        del self.tape.nodes[since:]
        return (g,)


def _one(made: Tensor | tuple[Tensor, ...]) -> Tensor:
    return made if isinstance(made, Tensor) else made[0]


def _all(made: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else made


def _leaves(inputs: Sequence[Tensor], wants: Sequence[bool]) -> list[Tensor]:
    """The inputs cut off from the graph (detach_variable)."""
    leaves = []
    for x, wanted in zip(inputs, wants, strict=True):
        leaf = Tensor(x.tape, x.shape, x.dtype, x.storage)
        if wanted:
            leaf.requires_grad, leaf.node = True, Leaf("gradient of checkpointed input", keeps=True)
        leaves.append(leaf)
    return leaves


def _gradients(leaves: list[Tensor]) -> tuple[Tensor | None, ...]:
    return tuple(leaf.node.grads[0] if isinstance(leaf.node, Leaf) else None for leaf in leaves)
