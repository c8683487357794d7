"""One block of the model, recorded once: what its forward and its backward leave behind and need."""

from __future__ import annotations

from typing import Any, NamedTuple

from memcalc.code.context import Context, Settings
from memcalc.engine.flow import BESIDE, BESIDE_GRADIENT, LOSS_GRADIENT, STREAM, STREAM_GRADIENT, Flow, Profile
from memcalc.specs.model import Block
from memcalc.tape.graph import saved_above
from memcalc.tape.host import Host
from memcalc.tape.span import Span, split, sum_up
from memcalc.tape.tape import Edge, Leaf, Tape
from memcalc.tape.tensor import Event, Record, Tensor, numel
from memcalc.units import DTYPE_BYTES

LOSS_SAVES = 3
"""Tensors of a size worth sending to the host that a loss saves: log-probabilities twice, and labels."""


def profile(
    block: Block,
    settings: Settings,
    x: Flow,
    shared: dict[str, Flow],
    *,
    recompute: bool = False,
    layers: int = 1,
    keep_gradients: bool = True,
    accumulate: bool = False,
    beside: Flow | None = None,
    in_batch: bool = False,
    graded: frozenset[str] = frozenset(),
    alone: frozenset[str] = frozenset(),
) -> Profile:
    """Record one block.

    Args:
        block: which.
        settings: sizes, dtypes and whose modules.
        x: its input.
        shared: what earlier blocks made for it.
        recompute: its forward saves only its input and is run again in backward.
        layers: how many layers of the block are run as one.
        keep_gradients, accumulate: see `Tape`.
        beside: what a join takes besides its input.
        in_batch: its input belongs to the batch, which the trainer holds through the step.
        graded: names of shared tensors that have a gradient, from later blocks, when it runs back.
        alone: names of shared tensors that it makes and no later block sends a gradient of.
    """
    tape = Tape(
        keep_gradients=keep_gradients,
        accumulate=accumulate,
        autocast=settings.autocast,
        marks=settings.marks != "none",
        keeps_inputs=settings.keeps_linear_inputs,
        offloads=settings.offloads and settings.records,
        sums_in_place=settings.sums_in_place,
    )
    recording = _Recording(Context(tape, settings), block, x, shared, again=recompute and settings.records, layers=layers)
    recording.take(beside, graded)
    return recording.run(in_batch=in_batch, alone=alone)


class _Forward(NamedTuple):
    """What a block's forward pass left.

    Attributes:
        out: its output.
        edge: where that comes from in the graph.
        made: the shared tensors that it made.
        passed: its output is its input.
    """

    out: Flow
    edge: Edge
    made: dict[str, Flow]
    passed: bool


class _Recording:
    """A block that is being recorded.

    Args:
        ctx: in which its programs run.
        block: which.
        x: its input.
        shared: what earlier blocks made for it.
        again: its forward saves only its input and is run again in backward.
        layers: how many layers are run as one.
    """

    def __init__(self, ctx: Context, block: Block, x: Flow, shared: dict[str, Flow], *, again: bool, layers: int) -> None:
        self.ctx, self.tape, self.events, self.block = ctx, ctx.tape, ctx.tape.events, block
        self.x, self.known, self.again, self.layers = x, shared, again, layers
        self.stream, self.gradient = (BESIDE, BESIDE_GRADIENT) if block.sees_images else (STREAM, STREAM_GRADIENT)
        flows = shared.items()
        ctx.shared.update({name: self.tape.input(f.shape, f.dtype, f"activations/{name}", requires_grad=f.requires_grad) for name, f in flows})
        self.outside = {id(t.storage.record): name for name, t in ctx.shared.items() if t.storage is not None}
        self.inputs = [self.tape.input(x.shape, x.dtype, self.stream, requires_grad=x.requires_grad)]
        self.taken = self.inputs[0].storage.record if self.inputs[0].storage is not None else None
        self.given = [] if self.taken is None else [self.taken]
        if isinstance(self.inputs[0].node, Leaf):
            self.inputs[0].node.path = self.gradient
        self.leaves: list[tuple[Any, str]] = [(self.inputs[0].node, self.gradient)]
        self.y: Tensor | None = None
        self.put: Record | None = None
        self.takers = {name: t.node for name, t in ctx.shared.items() if isinstance(t.node, Leaf)}

    def take(self, beside: Flow | None, graded: frozenset[str]) -> None:
        """What it gets besides its input: what is joined to that, and gradients that later blocks made of shared tensors."""
        if beside is not None:
            self.ctx.beside = [self.tape.input(beside.shape, beside.dtype, BESIDE, requires_grad=beside.requires_grad)]
            self.given += [t.storage.record for t in self.ctx.beside if t.storage is not None]
        self.leaves += [(t.node, BESIDE_GRADIENT) for t in self.ctx.beside]
        self.leaves += [(node, f"activations/gradient of {name}") for name, node in self.takers.items()]
        for name in graded:
            self.takers[name].grads[0] = self.tape.input(self.known[name].shape, self.known[name].dtype, f"activations/gradient of {name}")

    def run(self, *, in_batch: bool, alone: frozenset[str]) -> Profile:
        """Forward, the end of the model's forward, and backward; arguments as for `profile`."""
        events, ctx, is_marked = self.events, self.ctx, self.ctx.settings.marks != "none"
        begin = len(events)
        held = list(self.inputs) if in_batch else []
        went = self.forward()
        happened = events[begin:]
        profile = Profile(sum_up(happened), Span(), Span(), went.out, went.made, forward_steps=split(happened) if is_marked else ())
        profile.frees_input = any(sign < 0 and record is self.taken for sign, record in happened)
        profile.holds_output, profile.reruns = ctx.holds_output, self.again
        begin = len(events)
        self.release()
        profile.release = sum_up(events[begin:])
        profile.keeps = self.kept()
        profile.host_bytes = self.tape.host.num_bytes if self.tape.host is not None else 0
        runs_back = (went.out.requires_grad and not went.passed) or any(flow.requires_grad for flow in went.made.values())
        if not (ctx.settings.records and runs_back):
            return profile
        happened, end = self.backward(went, held, alone)
        profile.backward, profile.end = sum_up(happened), sum_up(end)
        begin = len(events)
        ctx.outliving.clear()
        profile.after = sum_up(events[begin:])
        profile.saves_output = any(sign < 0 and record is self.put for sign, record in happened)
        profile.awaiting_bytes = sum(record.num_bytes for record in self.tape.awaiting.values())
        profile.backward_steps = split(happened) if is_marked else ()
        profile.grades = frozenset(name for name, node in self.takers.items() if node.grads[0] is not None)
        return profile

    def forward(self) -> _Forward:
        """The block on its input."""
        ctx, tape = self.ctx, self.tape
        with tape.enable_grad() if ctx.settings.records and not self.again else tape.no_grad():
            y = self.y = self.once()
        if not self.again:
            self.inputs.clear()
            ctx.lingering.clear()
            ctx.arguments.clear()
        if tape.host is not None:
            self.send(tape.host)
        if y.storage is not None and self.block.role != "head":
            y.storage.record.path = self.stream
            self.put = None if self.again else y.storage.record
        given = {id(record): record.path for record in self.given}
        made = _publish(ctx, self.known, given)
        self.outside |= {
            id(t.storage.record): name for name, t in ctx.shared.items() if name in made and t.storage is not None and id(t.storage.record) in given
        }
        passed = y.storage is not None and y.storage.record is self.taken
        out = self.x if passed else Flow(y.shape, y.dtype, y.requires_grad or self.again)
        return _Forward(out, (y.node, y.index) if y.node is not None else None, made, passed)

    def send(self, host: Host) -> None:
        """What is saved is on the host when the next block begins; a checkpoint's input, too. Copies for the last norm and the head are under way longer."""
        if self.again:
            host.take(numel(self.x.shape) * DTYPE_BYTES[self.x.dtype])
            self.inputs.clear()
        if self.block.role not in ("norm", "head"):
            host.settle()

    def fetch(self) -> None:
        """A checkpoint's input comes back from the host."""
        self.inputs.append(self.tape.input(self.x.shape, self.x.dtype, self.stream, requires_grad=self.x.requires_grad))
        if isinstance(self.inputs[0].node, Leaf):
            self.inputs[0].node.path = self.gradient
        self.leaves[0] = (self.inputs[0].node, self.gradient)

    def once(self) -> Tensor:
        """One repetition of the block: its module on its input, several times over where several layers are one unit."""
        ctx, block, x = self.ctx, self.block, self.inputs[0]
        if self.layers == 1:
            return ctx.run(block.module, x, block.path)
        for j in range(self.layers):
            x = ctx.run(block.module, x, f"{block.path}/{j}")
        return x

    def release(self) -> None:
        """What goes when the forward pass of the whole model is over."""
        self.tape.weight_casts.clear()
        logits = self.ctx.shared.pop("logits", None)
        if logits is not None and self.ctx.settings.holds_logits:
            self.ctx.lingering["logits"] = (Tensor(self.tape, logits.shape, logits.dtype, logits.storage),)
        for node in self.ctx.asides:
            node.forget()
        if self.tape.host is not None and self.block.role == "norm":
            self.tape.host.age(LOSS_SAVES)

    def kept(self) -> frozenset[str]:
        """Names of shared tensors that are saved for backward."""
        if self.again or self.ctx.settings.submodules:
            return frozenset(name for name in self.outside.values() if name in self.ctx.shared.read or name == "position_ids")
        return _saved(self.ctx, self.outside, self.events)

    def backward(self, went: _Forward, held: list[Tensor], alone: frozenset[str]) -> tuple[list[Event], list[Event]]:
        """The events of the backward pass, with those of the forward that is run again, and what stays until that of the whole model is over."""
        ctx, tape, events = self.ctx, self.tape, self.events
        path, edge = LOSS_GRADIENT if self.block.role == "head" else self.gradient, went.edge
        grad: list[Tensor | None] = [tape.input(went.out.shape, went.out.dtype, path) if went.out.requires_grad else None]
        sent: dict[str, list[Tensor | None]] = {
            name: [tape.input(t.shape, t.dtype, f"activations/gradient of {name}")] for name, t in went.made.items() if t.requires_grad and name not in alone
        }
        self.y = None
        begin = len(events)
        variables: list[Tensor] = []  # what Megatron-core's checkpoint has while its graph runs back (tensor_parallel/random.py, CheckpointFunction.backward)
        if self.again:
            if not self.inputs:
                self.fetch()
            held += [ctx.shared.pop(name) for name in ctx.differentiable & went.made.keys()]
            with tape.enable_grad(), tape.on_card():
                second = self.once()
            edge = (second.node, second.index) if second.node is not None else None
            if ctx.settings.code == "megatron":
                variables += [second, *(g for g in grad if g is not None)]
            del second
            tape.weight_casts.clear()
        lingering = [t for tensors in ctx.lingering.values() for t in (*tensors, *saved_above(tensors))]
        on_their_way, ends = _deliver(ctx, sent, drop=self.again)
        if self.again and ctx.settings.code != "megatron":
            edge = _put_off(tape, edge, grad, begin)
        tape.backward(edge, grad)
        variables.clear()
        if tape.host is not None:
            tape.host.settle()
        self.inputs.clear()
        ctx.arguments.clear()
        for leaf, path in self.leaves:
            if leaf is not None and leaf.grads[0] is not None and leaf.grads[0].storage is not None:
                record = leaf.grads[0].storage.record
                _file(events, record, path, before=on_their_way.get(id(record)))
        # The next block lets go of what was passed on.
        happened = [e for e in events[begin:] if id(e[1]) not in self.outside and not (went.passed and e[1] is self.taken)]
        begin = len(events)
        ctx.lingering.clear()
        for waiting in ctx.waiting:
            waiting.grads.clear()
        lingering.clear()
        end = events[begin:]
        held.clear()
        del ends
        return happened, end


def _deliver(ctx: Context, sent: dict[str, list[Tensor | None]], *, drop: bool) -> tuple[dict[int, str], list[Any]]:
    """Hand in the gradients that later blocks made of shared tensors; what was recomputed of those is dropped.

    Returns:
        what the records of those are called that have not come to an end yet, by identity; where they go, which holds those that stay.
    """
    ends: list[Any] = []
    given = [(g.storage.record, g.storage.record.path) for grads in sent.values() for g in grads if g is not None and g.storage is not None]
    for name, grads in sent.items():
        tensor = ctx.shared[name]
        ends.append(tensor.node)
        ctx.tape.deliver((tensor.node, tensor.index) if tensor.node is not None else None, grads)
        if drop:
            ctx.shared.pop(name)
        del tensor
    for record, path in given:
        _file(ctx.tape.events, record, record.path, before=path)
    return {id(record): path for record, path in given if record.path == path}, ends


def _file(events: list[Event], record: Record, path: str, *, before: str | None) -> None:
    """Bytes get another name; those that were there before this stretch, under a name, move there."""
    if before is not None and before != path:
        events += [(-1, Record(before, record.shape, record.dtype)), (1, record)]
    record.path = path


def _put_off(tape: Tape, edge: Edge, grad: list[Tensor | None], begin: int) -> Edge:
    """Move a recomputation, just recorded, to where backward first asks for a saved tensor, and stop it where the last one is made.

    Checkpointing without reentrance runs forward again inside the first operator that unpacks something (torch/utils/checkpoint.py,
    _checkpoint_without_reentrant_generator, early stop), when the operators after it have run back; each recomputed tensor then belongs to the
    one operator that unpacks it. Megatron-core checkpoints with reentrance: all of forward first, then backward.

    Returns:
        where backward goes on: nowhere new, since the gradient has been handed in.
    """
    events, last = tape.events, tape.last_saving
    recorded = len(events)
    tape.recomputed = True
    tape.backward(edge, grad, since=last.num_nodes)
    needless = {id(record) for sign, record in events[last.num_events : recorded] if sign > 0} | last.outputs
    again = [event for event in events[begin:recorded] if id(event[1]) not in needless]
    events[begin:] = events[recorded:] + again
    return None


def _publish(ctx: Context, known: dict[str, Flow], given: dict[int, str]) -> dict[str, Flow]:
    """The shared tensors that this block made; their bytes are filed under their name alone, since they outlive the block.

    Args:
        ctx: where the block ran.
        known: those that earlier blocks made.
        given: what the block's inputs are called, which may be among them, by identity.
    """
    made = {}
    for name, tensor in ctx.shared.items():
        if name not in known and name != "logits":
            made[name] = Flow(tensor.shape, tensor.dtype, tensor.requires_grad or name in ctx.differentiable)
            if tensor.storage is not None:
                _file(ctx.tape.events, tensor.storage.record, f"activations/{name}", before=given.get(id(tensor.storage.record)))
    return made


def _saved(ctx: Context, outside: dict[int, str], events: list[Event]) -> frozenset[str]:
    """The shared tensors from outside that outlive the last local reference: a node has saved them. Their places in the graph stay."""
    begin, places = len(events), dict[str, Tensor]()
    for name in outside.values():
        tensor = ctx.shared.pop(name, None)
        if tensor is not None:
            place = places[name] = Tensor(ctx.tape, tensor.shape, tensor.dtype, None)
            place.node, place.index, place.requires_grad = tensor.node, tensor.index, tensor.requires_grad
        del tensor
    ctx.shared.update(places)
    died = {id(record) for _, record in events[begin:]}
    return frozenset(name for key, name in outside.items() if key not in died)
