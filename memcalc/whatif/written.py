"""A run in another framework's words, held against what is read back of them: what the words leave out is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from memcalc.engine.estimate import estimate
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.importers.export import export, read_back
from memcalc.specs.fields import run_keys
from memcalc.specs.read import Layer, merged
from memcalc.specs.run import Run

Place = tuple[str, ...]
Bytes = tuple[tuple[str, Any], ...]


class Written(NamedTuple):
    """A run in a format.

    Attributes:
        text: the file, or the flags.
        beside: keys of the run that the format has no words for, dotted: with them the text is read as the same run.
    """

    text: str
    beside: tuple[str, ...]


def written(run: Run, format_name: str) -> Written:
    """A run in a format, and what has to be said beside it.

    Raises:
        InputError: the format cannot say the run, or what it says is another one, whatever stands beside it.
    """
    mesh = resolve(run).mesh
    if mesh.pp > 1 and run.task == "train" and "grad_accum" not in run.model_fields_set:
        raise InputError(f"how many micro-batches go through the pipeline of {mesh.pp} stages is left open; {format_name} has to say", where="grad_accum")
    text = export(run, format_name)
    wanted = _bytes(run)
    layer = read_back(text, format_name, gpus=int(mesh.world))
    card = {("hardware", *place): value for place, value in Layer(run.hardware.as_dict()).leaves() if value is not None}
    said = merged([layer, _layer(card | {("model",): run.model})])
    beside = {leaf.path: value for leaf in run_keys().leaves() if (value := _at(run, leaf.path)) != _at(said, leaf.path)}
    beside |= {} if layer.data.get("model") == run.model else {("model",): run.model}
    sections = dict.fromkeys(["hardware", *(place[0] for place in beside if place[0] != "model")])
    groups = [[place for place in beside if place[0] == section] for section in sections]
    typed = {place: value for place, value in beside.items() if place == ("model",) or _is_set(run, place)}
    if _is_same(layer, card | typed, wanted):  # a default that is said is not always what it is unsaid: Liger's loss, a pipeline's micro-batches
        beside = typed
    elif not _is_same(layer, card | beside, wanted):
        raise InputError(f"what {format_name} can say of this run is read as another", where="--to")
    for left in (*groups, *([place] for place in beside)):
        rest = {place: value for place, value in beside.items() if place not in left}
        if len(rest) < len(beside) and _is_same(layer, card | rest, wanted):
            beside = rest
    return Written(text, tuple(".".join(place) for place in beside))


def _is_same(layer: Layer, beside: Mapping[Place, Any], wanted: Bytes) -> bool:
    try:
        return _bytes(merged([layer, _layer(beside)])) == wanted
    except InputError:
        return False


def _bytes(run: Run) -> Bytes:
    """What an estimate comes to at each instant of each kind of rank."""
    return tuple((instant.name, instant.allocated_bytes) for rank in estimate(run).ranks for instant in rank.instants)


def _layer(values: Mapping[Place, Any]) -> Layer:
    data: dict[str, Any] = {}
    for place, value in values.items():
        inner = data
        for part in place[:-1]:
            inner = inner.setdefault(part, {})
        inner[place[-1]] = value
    return Layer(data)


def _at(run: Run, place: Place) -> Any:
    value: Any = run
    for part in place:
        value = getattr(value, part, None)
    return value


def _is_set(run: Run, place: Place) -> bool:
    holder = _at(run, place[:-1])
    return holder is not None and place[-1] in holder.model_fields_set


__all__ = ["Written", "written"]
