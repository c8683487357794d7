"""The order of module calls in a pass, read off the marks of the recorded blocks, and which parameters each call uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from memcalc.components import MLP, GatedMLP, Linear
from memcalc.components.lora import LoraLinear
from memcalc.components.moe import Experts
from memcalc.components.quantized import QuantizedLinear
from memcalc.engine.plan import Part, Shard
from memcalc.specs.deepspeed import LeafModule
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


def timeline(part: Part, leaves: frozenset[str] = frozenset()) -> Timeline:
    """A block's marks as calls, with those that its program does not show and without those below `leaves`."""
    hidden = frozenset(hidden_after(part.block.module, f"{part.block.path}/"))
    skipped = frozenset(_below(part.block.module, f"{part.block.path}/", leaves))
    if part.block.role == "head":
        skipped |= {part.block.path}
    forward = [(span, *_read(mark, hidden, skipped)) for span, mark in part.profile.forward_steps]
    return Timeline(forward, [(span, *_read(mark, hidden, skipped)) for span, mark in _stopped(part.profile.backward_steps)])


def _below(module: Component, prefix: str, leaves: frozenset[str], *, inside: bool = False) -> Iterator[str]:
    for name, child in module.children():
        path = f"{prefix}{name}"
        if inside:
            yield path
        yield from _below(child, f"{path}/", leaves, inside=inside or path in leaves)


def leaves_of(part: Part, model_type: str, leaf: LeafModule) -> Iterator[str]:
    """Paths of the modules of a block that stage 3 takes as one: by their class, where they hold experts, or by the end of their name.

    Classes are those of transformers, which are called after their model: ``MixtralSparseMoeBlock``, ``DeepseekV3MoE``, ``GptOssMLP``.
    """
    model = model_type.removesuffix("_text").replace("_", "")
    names = [name.rpartition(".")[2].lower().replace("_", "").removesuffix("block").removesuffix("sparsemoe") for name in leaf.classes]
    by_class = any(name.removesuffix("moe").removesuffix("mlp") in (model, f"{model}text", model.removesuffix("moe")) for name in names)
    for path, child in _all(part.block.module, f"{part.block.path}/"):
        if (by_class and any(isinstance(c, Experts) for _, c in child.children())) or path.endswith(leaf.name_suffixes or ("\0",)):
            yield path


def _all(module: Component, prefix: str) -> Iterator[tuple[str, Component]]:
    for name, child in module.children():
        yield f"{prefix}{name}", child
        yield from _all(child, f"{prefix}{name}/")


def views(part: Part, *, linear: bool) -> Iterator[str]:
    """Paths of the parameters of which operators save views, which live on when the parameters are released.

    Grouped products save transposed weights, those of one expert a slice; torch's own linear function saves a transposed weight, which
    DeepSpeed's avoids (`linear`), and bitsandbytes' 4-bit product one of packed values (autograd/_functions.py, MatMul4Bit, ``ctx.tensors``).
    """
    for path, child in _all(part.block.module, f"{part.block.path}/"):
        if isinstance(child, QuantizedLinear):
            yield f"{path}/weight"
        elif isinstance(child, Experts) and not child.transposed:
            yield from (f"{path}/{w.name}" for w in child.own_weights() if "bias" not in w.name)
        elif linear and isinstance(child, Linear):
            yield f"{path}/weight"


def hidden_after(module: Component, prefix: str) -> Iterator[str]:
    """Paths of modules after which one runs that programs do not show: an activation after a network's first layer, an adapter's dropout."""
    if isinstance(module, LoraLinear):
        yield f"{prefix}base_layer"
    if isinstance(module, (GatedMLP, MLP)):
        first = module.gate if isinstance(module, GatedMLP) else module.up
        yield f"{prefix}{first.module_name}"
    for name, child in module.children():
        yield from hidden_after(child, f"{prefix}{name}/")


def _read(mark: Record | None, hidden: frozenset[str], skipped: frozenset[str]) -> tuple[Record | None, tuple[Call, ...]]:
    if mark is None:
        return None, ()
    kind, _, module = mark.path.partition("/")
    if kind not in ("enter", "leave", "enter backward", "leave backward"):
        return mark, ()
    if module in skipped:
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


def parameters_of(shards: Iterable[Shard], line: Timeline) -> dict[str, list[str]]:
    """Paths of the parameters that each module of a block uses itself: those whose path begins with its own and with no longer one."""
    entered = sorted({call.module for _, _, calls in line.forward for call in calls if call.module}, key=len, reverse=True)
    found: dict[str, list[str]] = {module: [] for module in entered}
    for shard in shards:
        owner = next((module for module in entered if shard.path.startswith(f"{module}/")), None)
        if owner is not None:
            found[owner].append(shard.path)
    return found
