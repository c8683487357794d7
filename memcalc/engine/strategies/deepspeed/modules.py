"""The order of module calls in a pass, read off the marks of the recorded blocks, and which parameters each call uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memcalc.components import MLP, GatedMLP, Linear
from memcalc.components.lora import LoraLinear
from memcalc.engine.plan import Part
from memcalc.specs.model import Component
from memcalc.tape.span import Span
from memcalc.tape.tensor import Record

NAMELESS = ""
"""A call of a module without parameters of its own that the recorded programs do not show: the model itself, rotary angles, an activation."""


class Call(NamedTuple):
    """Something that happens to a module.

    Attributes:
        kind: ``enter``, ``leave``, ``enter backward``, ``leave backward``.
        module: its path; empty for one without parameters that programs do not show.
    """

    kind: str
    module: str


Moment = tuple[Span, "Record | None", tuple[Call, ...]]
"""A stretch, with the gradient that is complete at its end or the calls that happen there."""


class Timeline(NamedTuple):
    """A block, both ways."""

    forward: Sequence[Moment]
    backward: Sequence[Moment]

    @property
    def is_recomputed(self) -> bool:
        """Whether forward runs again in backward."""
        return any(call.kind == "enter" for _, _, calls in self.backward for call in calls if call.module)


def timeline(part: Part) -> Timeline:
    """A block's marks as calls, with those that its program does not show."""
    hidden = frozenset(hidden_after(part.block.module, f"{part.block.path}/"))
    skipped = part.block.path if part.block.role == "head" else None
    forward = [(span, *_read(mark, hidden, skipped)) for span, mark in part.profile.forward_steps]
    return Timeline(forward, [(span, *_read(mark, hidden, skipped)) for span, mark in _stopped(part.profile.backward_steps)])


def linears(module: Component, prefix: str) -> Iterator[str]:
    """Paths of all linear layers."""
    for name, child in module.children():
        if isinstance(child, Linear):
            yield f"{prefix}{name}"
        yield from linears(child, f"{prefix}{name}/")


def hidden_after(module: Component, prefix: str) -> Iterator[str]:
    """Paths of modules after which one runs that programs do not show: an activation after a network's first layer, an adapter's dropout."""
    if isinstance(module, LoraLinear):
        yield f"{prefix}base_layer"
    if isinstance(module, (GatedMLP, MLP)):
        first = module.gate if isinstance(module, GatedMLP) else module.up
        yield f"{prefix}{first.module_name}"
    for name, child in module.children():
        yield from hidden_after(child, f"{prefix}{name}/")


def _read(mark: Record | None, hidden: frozenset[str], skipped: str | None) -> tuple[Record | None, tuple[Call, ...]]:
    if mark is None:
        return None, ()
    kind, _, module = mark.path.partition("/")
    if kind not in ("enter", "leave", "enter backward", "leave backward"):
        return mark, ()
    if module == skipped:
        return None, ()
    calls = [Call(kind, module)]
    if module in hidden and kind == "leave":
        calls.append(Call("enter", NAMELESS))
    elif module in hidden and kind == "enter backward":
        calls.insert(0, Call("enter backward", NAMELESS))
    return None, tuple(calls)


def _stopped(steps: Sequence[tuple[Span, Record | None]]) -> Sequence[tuple[Span, Record | None]]:
    """Recomputation stops inside the last module that saves something, which is not left, then (torch/utils/checkpoint.py, early stop)."""
    kinds = [mark.path.partition("/")[0] if mark is not None else "" for _, mark in steps]
    last = max((i for i, kind in enumerate(kinds) if kind == "enter"), default=len(kinds))
    return [(span, None if i > last and kinds[i] == "leave" else mark) for i, (span, mark) in enumerate(steps)]


def parameters_of(part: Part, line: Timeline) -> dict[str, list[str]]:
    """Paths of the parameters that each module of a block uses itself: those whose path begins with its own and with no longer one."""
    entered = sorted({call.module for _, _, calls in line.forward for call in calls if call.module}, key=len, reverse=True)
    found: dict[str, list[str]] = {module: [] for module in entered}
    for shard in part.shards:
        owner = next((module for module in entered if shard.path.startswith(f"{module}/")), None)
        if owner is not None:
            found[owner].append(shard.path)
    return found
