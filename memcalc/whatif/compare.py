"""Runs side by side: what each needs at its own peak, and what makes the difference. Answers as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple

from memcalc.engine.result import Estimate, Term
from memcalc.errors import InputError
from memcalc.specs.fields import Leaf, flags
from memcalc.specs.run import Run

ACTOR = "actor/"
"""Begins the paths of the model that learns, where there are others."""
Source = Run | Mapping[str, Any] | str | PathLike[str]


class Comparison(NamedTuple):
    """Two or more runs; the first is what the others are held against.

    Attributes:
        names: what each is called.
        estimates: the answer to each.
    """

    names: tuple[str, ...]
    estimates: tuple[Estimate, ...]

    def peaks(self) -> tuple[tuple[Term, ...], ...]:
        """What is alive at each run's own peak. Beside a run of several models, the one model of another is an actor, too."""
        several = [any(term.path.startswith(ACTOR) for term in estimate.peak.terms) for estimate in self.estimates]
        return tuple(
            tuple(replace(term, path=f"{ACTOR}{term.path}") for term in estimate.peak.terms) if any(several) and not has_roles else estimate.peak.terms
            for estimate, has_roles in zip(self.estimates, several, strict=True)
        )

    def terms(self) -> dict[str, tuple[int, ...]]:
        """Bytes of every path at each run's own peak; zero where a run has none of it."""
        found: dict[str, list[int]] = {}
        for i, terms in enumerate(self.peaks()):
            for term in terms:
                found.setdefault(term.path, [0] * len(self.estimates))[i] += term.bytes
        return {path: tuple(values) for path, values in found.items()}

    def difference_bytes(self, i: int) -> int:
        """How much more a run's most loaded rank allocates than the first's."""
        return self.estimates[i].most_loaded.allocated_bytes - self.estimates[0].most_loaded.allocated_bytes

    def changes(self, i: int) -> list[tuple[str, Any, Any]]:
        """Keys whose value, as resolved, differs from the first run's: key, there, here."""
        there, here = flat(self.estimates[0].asked), flat(self.estimates[i].asked)
        keys = [key for key in dict.fromkeys([*here, *there]) if here.get(key) != there.get(key)]
        return [(key, there.get(key), here.get(key)) for key in keys]


def compare(runs: Sequence[Source] | Mapping[str, Source], /, **keys: Any) -> Comparison:
    """Estimate several runs.

    Args:
        runs: each a run, a dict laid out as a run file, the path of a run file or the name of a model; a mapping names them.
        keys: keys that hold for all of them, as for `memcalc.estimate`.

    Raises:
        InputError: fewer than two runs, or one that cannot be.
    """
    from memcalc.engine.estimate import estimate
    from memcalc.specs.read import read_run

    named = dict(runs) if isinstance(runs, Mapping) else {_name(source, i): source for i, source in enumerate(runs)}
    return compared({name: estimate(read_run(source, **keys)) for name, source in named.items()})


def compared(estimates: Mapping[str, Estimate]) -> Comparison:
    """A comparison of answers that are there.

    Raises:
        InputError: fewer than two.
    """
    if len(estimates) < 2:
        raise InputError(f"a comparison takes at least two runs, {len(estimates)} given")
    return Comparison(tuple(estimates), tuple(estimates.values()))


def variant(text: str) -> dict[str, Any]:
    """What an inline variant changes: ``zero=3,gpus=4``. A part without ``=`` is a switch, or goes on with a list.

    Raises:
        InputError: it changes nothing, or not as ``key=value``, or one key twice.

    >>> variant("sharding.zero=3, lora.r=8, lora_target_modules=q_proj,v_proj, sp")
    {'zero': '3', 'lora_r': '8', 'lora_target_modules': 'q_proj,v_proj', 'sp': True}
    """
    found: dict[str, Any] = {}
    last = ""
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        name = key.replace("-", "_")
        if equals:
            joined = name.replace(".", "_")  # lora.r is --lora-r, and sharding.zero is --zero
            last = joined if joined.replace("_", "-") in flags() else name.rpartition(".")[2]
            _once(found, last, value, text)
        elif _is_switch(name.removeprefix("no_")):
            _once(found, name.removeprefix("no_"), not name.startswith("no_"), text)
        elif last and key:
            found[last] = f"{found[last]},{key}"
        else:
            raise InputError(f"{text!r} is not a variant; write key=value pairs with commas between, such as zero=3,gpus=4")
    return found


def _once(found: dict[str, Any], name: str, value: Any, text: str) -> None:
    if name in found:
        raise InputError(f"{text!r} says {name} twice", where="compare")
    found[name] = value


def flat(asked: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys with their dotted names, in the words of the flags for sharding and hardware (``tp``, not ``sharding.tp``)."""
    found: dict[str, Any] = {}
    for key, value in asked.items():
        if isinstance(value, Mapping) and key != "deepspeed":
            found |= flat(value, "" if not prefix and key in ("sharding", "hardware") else f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _is_switch(name: str) -> bool:
    node = flags().get(name.replace("_", "-"))
    return node is not None and (not isinstance(node, Leaf) or node.kind == "bool")


def _name(source: Source, i: int) -> str:
    if isinstance(source, str | PathLike):
        return str(source)
    model = source.model if isinstance(source, Run) else source.get("model", "run")
    return f"{model} ({i + 1})"


def kinds(comparison: Comparison) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Bytes of each top kind (``weights``, ``optimizer``, …) at each run's own peak."""
    totals: dict[str, list[int]] = {}
    for path, values in comparison.terms().items():
        kind = totals.setdefault(path.split("/")[0], [0] * len(values))
        for i, value in enumerate(values):
            kind[i] += value
    yield from ((kind, tuple(values)) for kind, values in totals.items())
