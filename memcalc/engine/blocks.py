"""One block of the model, recorded once: what its forward and its backward leave behind and need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from memcalc.code.context import Context, Settings
from memcalc.dataclass import dataclass
from memcalc.specs.model import Block
from memcalc.tape.span import Span, split, sum_up
from memcalc.tape.tape import Edge, Leaf, Tape
from memcalc.tape.tensor import Event, Record, Shape, Tensor

STREAM = "activations/hidden_states"
STREAM_GRADIENT = "activations/gradient of hidden_states"
BESIDE = "activations/image hidden_states"
BESIDE_GRADIENT = "activations/gradient of image hidden_states"
PIXELS = "batch/pixel_values"


@dataclass(frozen=True)
class Flow:
    """A tensor that passes from block to block."""

    shape: Shape
    dtype: str
    requires_grad: bool

    def key(self) -> tuple[Any, ...]:
        """What tells it from others; an array of sizes is told by its identity."""
        return (*((a.name, a.size if isinstance(a.size, int) else id(a.size)) for a in self.shape), self.dtype, self.requires_grad)


Steps = Sequence[tuple[Span, Record | None]]
"""Stretches, each with the mark that ends it."""


@dataclass
class Profile:
    """What one block does to memory.

    Attributes:
        forward: from its input to its output; the output stays, the input goes unless it is saved.
        release: what goes when the forward pass of the whole model is over (autocast's weight copies, the logits).
        backward: from the gradient of its output to that of its input, saved tensors freed, weight gradients born.
        out: its output.
        shared: tensors it made for all later blocks.
        keeps: names of shared tensors that it saves for backward.
        grades: names of shared tensors whose gradient it makes, or adds to.
        forward_steps, backward_steps: both, cut at the marks that `Settings.marks` asks for; empty where it asks for none.
        frees_input: its input is gone after its forward, since nothing saved it.
        holds_output: the model's own forward holds its output until the last layer is through (of an embedding).
        runs: it is used at all; the vision tower of a model that sees no images is not.
    """

    forward: Span
    release: Span
    backward: Span
    out: Flow
    shared: dict[str, Flow] = field(default_factory=dict)
    keeps: frozenset[str] = frozenset()
    forward_steps: Steps = ()
    backward_steps: Steps = ()
    frees_input: bool = True
    holds_output: bool = True
    runs: bool = True
    grades: frozenset[str] = frozenset()


def unused(x: Flow) -> Profile:
    """The profile of a block that is there and does not run."""
    return Profile(Span(), Span(), Span(), x, holds_output=False, runs=False, frees_input=False)


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
    stream, gradient = (BESIDE, BESIDE_GRADIENT) if block.sees_images else (STREAM, STREAM_GRADIENT)
    marks = settings.marks != "none"
    tape = Tape(keep_gradients=keep_gradients, accumulate=accumulate, autocast=settings.autocast, marks=marks, keeps_inputs=settings.keeps_linear_inputs)
    ctx = Context(tape, settings)
    ctx.shared.update({name: tape.input(flow.shape, flow.dtype, f"activations/{name}", requires_grad=flow.requires_grad) for name, flow in shared.items()})
    outside = {id(t.storage.record): name for name, t in ctx.shared.items() if t.storage is not None}
    inputs = [tape.input(x.shape, x.dtype, stream, requires_grad=x.requires_grad)]
    if beside is not None:
        ctx.beside = [tape.input(beside.shape, beside.dtype, BESIDE, requires_grad=beside.requires_grad)]
    leaves = [(inputs[0].node, gradient), *((t.node, BESIDE_GRADIENT) for t in ctx.beside)]
    takers = {name: t.node for name, t in ctx.shared.items() if isinstance(t.node, Leaf)}
    leaves += [(node, f"activations/gradient of {name}") for name, node in takers.items()]
    for name in graded:
        takers[name].grads[0] = tape.input(shared[name].shape, shared[name].dtype, f"activations/gradient of {name}")
    taken = inputs[0].storage.record if inputs[0].storage is not None else None
    events = tape.events
    begin = len(events)

    again = recompute and settings.training
    with tape.enable_grad() if settings.training and not again else tape.no_grad():
        y = _run(ctx, block, inputs[0], layers)
    held = list(inputs) if in_batch else []
    if not again:
        inputs.clear()
    if y.storage is not None and block.role != "head":
        y.storage.record.path = stream
    made = _publish(ctx, shared, taken if block.role == "embedding" else None)
    passed = y.storage is not None and y.storage.record is taken
    out = x if passed else Flow(y.shape, y.dtype, y.requires_grad or again)
    forward = sum_up(events[begin:])
    frees_input = any(sign < 0 and record is taken for sign, record in events[begin:])
    forward_steps = split(events[begin:]) if marks else ()

    begin = len(events)
    tape.weight_casts.clear()
    ctx.shared.pop("logits", None)
    for node in ctx.asides:
        node.forget()
    release = sum_up(events[begin:])

    keeps = frozenset(name for name in outside.values() if name in ctx.shared.read or name == "position_ids") if again else _saved(ctx, outside, events)
    if (passed and not any(flow.requires_grad for flow in made.values())) or not (settings.training and out.requires_grad):
        return Profile(forward, release, Span(), out, made, keeps, forward_steps, (), frees_input, ctx.holds_output)
    grad: list[Tensor | None] = [tape.input(out.shape, out.dtype, gradient)]
    edge = (y.node, y.index) if y.node is not None else None
    sent: dict[str, list[Tensor | None]] = {
        name: [tape.input(t.shape, t.dtype, f"activations/gradient of {name}")] for name, t in made.items() if t.requires_grad and name not in alone
    }
    del y
    begin = len(events)
    if again:
        held += [ctx.shared.pop(name) for name in ctx.differentiable & made.keys()]
        with tape.enable_grad():
            second = _run(ctx, block, inputs[0], layers)
        edge = (second.node, second.index) if second.node is not None else None
        del second
        tape.weight_casts.clear()
    arrived, ends = _deliver(ctx, sent, drop=again)
    if again and settings.code != "megatron":
        edge = _put_off(tape, edge, grad, begin)
    tape.backward(edge, grad)
    inputs.clear()
    for leaf, path in leaves:
        if leaf is not None and leaf.grads[0] is not None and leaf.grads[0].storage is not None:
            record = leaf.grads[0].storage.record
            _file(events, record, path, before=arrived.get(id(record)))
    happened = [e for e in events[begin:] if id(e[1]) not in outside and not (passed and e[1] is taken)]  # the next block lets go of what was passed on
    backward = sum_up(happened)
    held.clear()
    del ends
    grades = frozenset(name for name, node in takers.items() if node.grads[0] is not None)
    steps = split(happened) if marks else ()
    return Profile(forward, release, backward, out, made, keeps, forward_steps, steps, frees_input, ctx.holds_output, grades=grades)


def _deliver(ctx: Context, sent: dict[str, list[Tensor | None]], *, drop: bool) -> tuple[dict[int, str], list[Any]]:
    """Hand in the gradients that later blocks made of shared tensors; what was recomputed of those is dropped.

    Returns:
        what the records of the gradients were called, by identity; where they go, which holds those that stay.
    """
    ends: list[Any] = []
    records = {id(g.storage.record): g.storage.record.path for grads in sent.values() for g in grads if g is not None and g.storage is not None}
    for name, grads in sent.items():
        tensor = ctx.shared[name]
        ends.append(tensor.node)
        ctx.tape.deliver((tensor.node, tensor.index) if tensor.node is not None else None, grads)
        if drop:
            ctx.shared.pop(name)
        del tensor
    return records, ends


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


def _run(ctx: Context, block: Block, x: Tensor, layers: int) -> Tensor:
    """One repetition of a block: its module on x, several times over where several layers are one unit."""
    if layers == 1:
        return ctx.run(block.module, x, block.path)
    for j in range(layers):
        x = ctx.run(block.module, x, f"{block.path}/{j}")
    return x


def _publish(ctx: Context, known: dict[str, Flow], taken: Record | None) -> dict[str, Flow]:
    """The shared tensors that this block made; their bytes are filed under their name alone, since they outlive the block.

    Args:
        ctx: where the block ran.
        known: those that earlier blocks made.
        taken: the block's input, which may be among them.
    """
    made = {}
    for name, tensor in ctx.shared.items():
        if name not in known and name != "logits":
            made[name] = Flow(tensor.shape, tensor.dtype, tensor.requires_grad or name in ctx.differentiable)
            if tensor.storage is not None:
                _file(ctx.tape.events, tensor.storage.record, f"activations/{name}", before=taken.path if tensor.storage.record is taken else None)
    return made


def _saved(ctx: Context, outside: dict[int, str], events: list[Event]) -> frozenset[str]:
    """The shared tensors from outside that outlive the last local reference: a node has saved them."""
    begin = len(events)
    for name in outside.values():
        ctx.shared.pop(name, None)
    died = {id(record) for _, record in events[begin:]}
    return frozenset(name for key, name in outside.items() if key not in died)
