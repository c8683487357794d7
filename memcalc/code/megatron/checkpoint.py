"""Recomputing a part of a layer, whose outputs go as well (megatron/core/tensor_parallel/random.py)."""

from __future__ import annotations

from memcalc.code.checkpoint import Function, gradients, leaves
from memcalc.code.context import Context
from memcalc.tape.tape import Edge, Node
from memcalc.tape.tensor import Storage, Tensor


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
            nodes, cut, outs = self.graph
            self.graph = None
            since = len(tape.nodes)
            tape.nodes.extend(nodes)
            del nodes
            edges: list[Edge] = [(t.node, t.index) if t.node is not None else None for t in outs]
            with self.ctx.at(self.place):
                for edge, g in zip(edges[1:], grads_and_saved[1 : len(edges)], strict=True):
                    tape.deliver(edge, [g])
                tape.backward(edges[0], [grads_and_saved[0]], since=since)
            return gradients(cut)

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
        cut = leaves(self.inputs, [t.requires_grad for t in self.inputs])
        self.inputs = ()
        since = len(self.tape.nodes)
        with self.ctx.at(self.place), self.tape.enable_grad():
            outs = _all(self.function(*cut))
        for storage, again in zip(self.dropped, outs, strict=True):
            if again.storage is not None:
                storage.take_over(again.storage)
        self.dropped = []
        self.graph = (self.tape.nodes[since:], cut, outs)
        del self.tape.nodes[since:]
        return (g,)


def _all(made: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else made
