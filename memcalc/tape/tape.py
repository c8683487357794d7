"""The tape: an autograd graph over tensors without data, and the ledger of their lives.

The rules are those of PyTorch's engine (torch/csrc/autograd/engine.cpp, input_buffer.cpp, functions/accumulate_grad.cpp):
nodes run in the reverse order of their creation; a node's incoming gradient is dropped when its outgoing ones exist, its
saved tensors right after; gradients that meet at a fork are summed; a parameter keeps the first gradient that reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from memcalc.tape.frame import AllThereError, Dropped, Frame, LastSaving, unmake, unpack
from memcalc.tape.host import Host, Packed
from memcalc.tape.tensor import Event, Record, Shape, Storage, Tensor

Backward = Callable[..., "tuple[Tensor | None, ...]"]
Finish = Callable[["list[Tensor | None]"], "list[Tensor | None]"]
Edge: TypeAlias = "tuple[Node | Leaf, int] | None"


class Leaf:
    """Where a gradient leaves the graph: a trainable parameter, or the input of the recorded stretch.

    Attributes:
        path: the name its gradient is filed under.
        keeps: the first gradient stays; otherwise each is dropped on arrival.
        sums: one is there already, outside, and each is summed with it out of place, as traces of tensors without data do (FakeTensor;
            on real ones AccumulateGrad adds in place).
    """

    __slots__ = ("grads", "keeps", "path", "sums")

    def __init__(self, path: str, *, keeps: bool, sums: bool = False) -> None:
        self.path, self.keeps, self.sums = path, keeps, sums
        self.grads: list[Tensor | None] = [None]


class Node:
    """One recorded operator: whom its gradients go to, what it saved, how it computes them."""

    __slots__ = ("backward", "edges", "finish", "grads", "saved")

    def __init__(
        self, edges: list[Edge], saved: tuple[Tensor | Packed | Dropped, ...], backward: Backward, num_outputs: int, finish: Finish | None = None
    ) -> None:
        self.edges, self.saved, self.backward, self.finish = edges, saved, backward, finish
        self.grads: list[Tensor | None] = [None] * num_outputs

    def run(self, *, recomputed: bool = False) -> list[Tensor | None]:
        """The gradients of the inputs; what came in and what was saved is let go, in this order.

        What was recomputed for this node alone goes first, before gradients are summed and cast.
        """
        grads = self._take()
        made = list(self.backward(tuple(edge is not None for edge in self.edges), *grads, *self.saved))
        if recomputed:
            self.saved = ()
        if self.finish is not None:
            made = self.finish(made)
        grads.clear()
        self.saved = ()
        return made

    def forget(self) -> None:
        """Let go of what was saved; it will not run."""
        self.saved = ()

    def _take(self) -> list[Tensor | None]:
        taken, self.grads = self.grads, []
        return taken


def nothing(_wants: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """The backward of what is held and never runs back."""
    return ()


class Tape:
    """Records one stretch of a step.

    Args:
        keep_gradients: a parameter's gradient stays to the end (``.grad``); False when whoever owns gradients takes each away
            the moment it is there (buckets, fused backward, optimizers in backward).
        accumulate: parameters hold a gradient already; each new one is added into it and dropped.
        autocast: the compute dtype of ``torch.autocast``, or None.
        marks: put a mark into the ledger wherever the gradient of a parameter is complete.
        keeps_inputs: linear layers save their inputs even where their weights are frozen.
        offloads: what is saved waits on the host.
        sums_in_place: a further gradient of a parameter is added into the first, as it is where no mode watches (input_buffer.cpp, accumulate).
    """

    def __init__(
        self,
        *,
        keep_gradients: bool = True,
        accumulate: bool = False,
        autocast: str | None = None,
        marks: bool = False,
        keeps_inputs: bool = False,
        offloads: bool = False,
        sums_in_place: bool = False,
    ) -> None:
        self.events: list[Event] = []
        self.nodes: list[Node] = []
        self.grad_enabled = True
        self.keeps_gradients = keep_gradients and not accumulate
        self.autocast = autocast
        self.marks = marks
        self.sums_in_place = sums_in_place
        self.keeps_inputs = keeps_inputs
        self.host = Host(self) if offloads else None
        self.frame: Frame | None = None
        self.last_saving = LastSaving()
        self.awaiting: dict[int, Record] = {}
        """Gradients that operators with weights have got, which wait where gradients of weights are put off."""
        self.recomputed = False
        """Saved tensors were made anew for backward, so that only the node that uses one refers to it."""
        self.shared: dict[str, Tensor] = {}
        self.weight_casts: dict[str, Tensor] = {}
        self._scope: list[str] = ["activations"]
        self._leaves: dict[str, Leaf] = {}

    # ------------------------------------------------------------------ names
    @contextmanager
    def scope(self, *names: str) -> Iterator[None]:
        """Names allocated inside get ``name/`` before them."""
        self._scope.extend(names)
        try:
            yield
        finally:
            del self._scope[len(self._scope) - len(names) :]

    def place(self) -> tuple[str, ...]:
        """The current scope."""
        return tuple(self._scope)

    @contextmanager
    def at(self, place: tuple[str, ...]) -> Iterator[None]:
        """What is allocated inside is named as in that scope."""
        before, self._scope = self._scope, list(place)
        try:
            yield
        finally:
            self._scope = before

    def path(self, name: str) -> str:
        """The full slash path of a name in the current scope."""
        return "/".join((*self._scope, name))

    # ------------------------------------------------------------------ births
    def new(self, shape: Shape, dtype: str, name: str) -> Tensor:
        """A fresh tensor with its own storage, outside the graph."""
        return Tensor(self, shape, dtype, Storage(self.events, Record(self.path(name), shape, dtype)))

    def input(self, shape: Shape, dtype: str, path: str, *, requires_grad: bool = False) -> Tensor:
        """A tensor that comes from outside the stretch; its gradient, when there is one, stays in its leaf."""
        tensor = Tensor(self, shape, dtype, Storage(self.events, Record(path, shape, dtype)))
        if requires_grad:
            tensor.requires_grad, tensor.node = True, Leaf(f"gradient of {path}", keeps=True)
        return tensor

    def outlives(self, shape: Shape, dtype: str, path: str) -> None:
        """A tensor that is born here for a later stretch, which takes it (`taken`)."""
        self.events.append((1, Record(path, shape, dtype)))

    def taken(self, shape: Shape, dtype: str, path: str) -> Tensor:
        """A tensor that an earlier stretch made for this one alone, and that dies here."""
        return Tensor(self, shape, dtype, Storage(self.events, Record(path, shape, dtype), is_born=False))

    def parameter(self, path: str, shape: Shape, dtype: str, *, trainable: bool, has_gradient: bool = False) -> Tensor:
        """A parameter: resident elsewhere, so without storage here; its gradient is born here.

        Args:
            path: its name, under which its gradient is filed as ``gradients/path``.
            trainable: whether it takes a gradient.
            has_gradient: one is there already when this stretch runs back (a tied weight), so a new one is added and dropped.
        """
        tensor = Tensor(self, shape, dtype, None)
        if trainable:
            leaf = self._leaves.get(path)
            if leaf is None:
                keeps, sums = self.keeps_gradients and not has_gradient, self.keeps_gradients and has_gradient
                leaf = self._leaves[path] = Leaf(f"gradients/{path}", keeps=keeps, sums=sums)
            tensor.requires_grad, tensor.node = True, leaf
        return tensor

    def mark(self, path: str, shape: Shape = (), dtype: str = "uint8") -> None:
        """A moment that others act on: its name, and the tensor that it is about."""
        self.events.append((0, Record(path, shape, dtype)))

    def mark_backward(self, x: Tensor, path: str) -> Tensor:
        """x itself; when its gradient passes here, that is marked."""
        y = Tensor(x.tape, x.shape, x.dtype, x.storage)

        def backward(_wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
            self.mark(path)
            return (g,)

        self.record(y, (x,), (), backward)
        return y

    # ------------------------------------------------------------------ the graph
    def record(
        self, outputs: Tensor | Sequence[Tensor], inputs: Sequence[Tensor], saves: Sequence[Tensor], backward: Backward, finish: Finish | None = None
    ) -> None:
        """Put an operator that has just run into the graph.

        Args:
            outputs: what it made; gradients arrive for these, in this order.
            inputs: what may want a gradient.
            saves: the tensors it keeps for backward.
            backward: ``backward(wants, *grads, *saves)`` returns a gradient or None for each input; ``wants`` says which inputs
                need one. It allocates what the real one allocates, in its order.
            finish: brings those gradients to the shapes and dtypes of the inputs, where `backward` leaves that to be done after
                it (the engine's validate_outputs).
        """
        if not self.grad_enabled:
            return
        edges: list[Edge] = [(t.node, t.index) if t.requires_grad and t.node is not None else None for t in inputs]
        if not any(edges):
            return
        made = [outputs] if isinstance(outputs, Tensor) else outputs
        try:
            kept = self._kept(saves)
        except AllThereError:
            unmake(made, (*saves, *inputs))
            raise
        node = Node(edges, kept, backward, len(made), finish)
        for index, tensor in enumerate(made):
            tensor.node, tensor.index, tensor.requires_grad = node, index, True
        if self.frame is not None and self.frame.replays:
            node.forget()
            return
        self.nodes.append(node)
        if saves:
            known = [t.storage for t in (*saves, *inputs)]
            new = frozenset(id(t.storage.record) for t in made if t.storage is not None and t.storage not in known)
            self.last_saving = LastSaving(len(self.nodes), len(self.events), new)

    def _kept(self, saves: Sequence[Tensor]) -> tuple[Tensor | Packed | Dropped, ...]:
        pack = self.frame.pack if self.frame is not None else self.host.pack if self.host is not None else None
        return tuple(saves) if pack is None else tuple(map(pack, saves))

    def set_aside(self, since: int, output: Tensor) -> list[Node]:
        """Take the nodes made after the first `since` out of the graph, since nothing is asked of them: backward leaves them alone.

        What they saved, and their output, is held until each has let go of it (`Node.forget`).
        """
        aside = [*self.nodes[since:], Node([], (output,), nothing, 0)]
        del self.nodes[since:]
        return aside

    @contextmanager
    def no_grad(self) -> Iterator[None]:
        """Nothing inside is recorded in the graph."""
        before, self.grad_enabled = self.grad_enabled, False
        try:
            yield
        finally:
            self.grad_enabled = before

    @contextmanager
    def enable_grad(self) -> Iterator[None]:
        """What is inside is recorded, even in a stretch that is not."""
        before, self.grad_enabled = self.grad_enabled, True
        try:
            yield
        finally:
            self.grad_enabled = before

    @contextmanager
    def within(self, frame: Frame) -> Iterator[None]:
        """What is saved inside is that of a checkpointed stretch."""
        before, self.frame = self.frame, frame
        try:
            yield
        finally:
            self.frame = before

    @contextmanager
    def on_card(self) -> Iterator[None]:
        """What is saved inside stays on the card, wherever the rest goes."""
        if self.host is None:
            yield
            return
        with self.host.closed():
            yield

    def backward(self, edge: Edge, grad: list[Tensor | None], *, since: int = 0) -> None:
        """Run the graph back from one output through every node made after the first ``since``.

        Args:
            edge: the output's place in the graph, ``(output.node, output.index)``.
            grad: the gradient that arrives there, alone in a list, so that it can be let go.
        """
        self.deliver(edge, grad)
        while len(self.nodes) > since:
            node = self.nodes.pop()
            if all(g is None for g in node.grads):
                node.forget()
                continue
            self._wait_for_weights(node)
            back = self.host.unpack(node) if self.host is not None else None
            frames = unpack(node)
            made, edges = node.run(recomputed=bool(frames) or self.recomputed), node.edges
            if self.host is not None:
                self.host.ran(back)
            del node, back, frames
            for i, onward in enumerate(edges):
                self.deliver(onward, made, i)
            del made, edges

    def _wait_for_weights(self, node: Node) -> None:
        if any(edge is not None and isinstance(edge[0], Leaf) and edge[0].path.startswith("gradients/") for edge in node.edges):
            found = (g.storage.record for g in node.grads if g is not None and g.storage is not None)
            self.awaiting.update({id(record): record for record in found})

    def deliver(self, edge: Edge, made: list[Tensor | None], i: int = 0) -> None:
        """Hand one gradient on: first come is kept, a second is summed with it."""
        grad, made[i] = made[i], None
        if edge is None or grad is None:
            return
        target, index = edge
        held = target.grads[index]
        if held is not None:
            grad = held if self.sums_in_place and isinstance(target, Leaf) else self.new(held.shape, held.dtype, "sum of gradients")
        target.grads[index] = grad
        del held, grad
        if isinstance(target, Leaf):
            self._arrived(target)

    def _arrived(self, leaf: Leaf) -> None:
        """A parameter, or an input, has a gradient: all of it, once no operator that is still to run back uses it."""
        grad = leaf.grads[0]
        assert grad is not None
        if leaf.keeps and grad.storage is not None:
            grad.storage.record.path = leaf.path
        is_marked = self.marks and leaf.path.startswith("gradients/")
        if (leaf.keeps and not is_marked) or any(edge is not None and edge[0] is leaf for node in self.nodes for edge in node.edges):
            return
        if not leaf.keeps:
            leaf.grads[0] = None
            if leaf.sums and not self.sums_in_place:
                self.new(grad.shape, grad.dtype, "sum of gradients")
        shape, dtype = grad.shape, grad.dtype
        del grad
        if is_marked:
            self.mark(leaf.path, shape, dtype)
