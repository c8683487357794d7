"""What a checked run is to blame for, and where in its file: the input of every format that other tools read. Answers as data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.files import read_yaml

Level = Literal["error", "warning", "note"]

BLAME: Mapping[str, tuple[str, ...]] = {
    "activations": ("micro_batch", "seq_len", "recompute"),
    "kv_cache": ("micro_batch", "seq_len"),
    "optimizer": ("optimizer", "sharding.zero", "sharding"),
    "gradients": ("sharding.zero", "sharding", "dtype"),
    "weights": ("model",),
}
"""Keys that make a kind of memory large, in the order in which they are blamed; the card and the model stand at the end."""


class Rule(NamedTuple):
    """A kind of finding.

    Attributes:
        id: stable.
        name, help: in words.
    """

    id: str
    name: str
    help: str


DOES_NOT_FIT = Rule("MEM001", "does-not-fit", "The most loaded rank needs more than its card, or the limit, offers.")
BELOW_MARGIN = Rule("MEM002", "below-margin", "It fits with less to spare than the margin.")
REFUSED = Rule("MEM010", "bad-input", "The run cannot be: an unknown key, a value that is not accepted, degrees that do not go together.")
RULES = (DOES_NOT_FIT, BELOW_MARGIN, REFUSED)


class Finding(NamedTuple):
    """One finding.

    Attributes:
        rule, level: of what kind.
        file: the run file.
        line: in it, from 1.
        estimate: the answer; None where the run was refused.
        reason: why it was.
        key: the key on that line, if one is to blame.
    """

    rule: Rule
    level: Level
    file: str
    line: int
    estimate: Estimate | None
    reason: str = ""
    key: str = ""


def findings(
    name: str, estimate: Estimate | None, refusal: str = "", *, margin_counts: bool = False, places: Mapping[str, tuple[str, int]] | None = None
) -> Iterator[Finding]:
    """The findings of one run.

    Args:
        name: its file, or what else it is called; empty where it has none.
        estimate: the answer, with its verdict; None where it was refused.
        refusal: why it was.
        margin_counts: less room than the margin is an error, not a warning.
        places: file and line of keys that stand in files of other frameworks.
    """
    if estimate is None:
        file, line, reason = _place(name, refusal)
        yield Finding(REFUSED, "error", file, line, None, reason)
        return
    verdict = estimate.verdict
    if verdict is None or (verdict.fits and not verdict.tight):
        return
    file, line, key = blamed(name, estimate, places or {})
    if not verdict.fits:
        yield Finding(DOES_NOT_FIT, "error", file, line, estimate, key=key)
    else:
        yield Finding(BELOW_MARGIN, "error" if margin_counts else "warning", file, line, estimate, key=key)


def blamed(path: str, estimate: Estimate, places: Mapping[str, tuple[str, int]]) -> tuple[str, int, str]:
    """File, line and name of the key that makes the largest kind at the peak as large as it is; the run file's first line where there is none."""
    try:
        lines = read_yaml(path).lines if path and not places else {}
    except InputError:
        return path, 1, ""
    known = {".".join(place): (path, line) for place, line in lines.items()} | dict(places)
    kinds: dict[str, int] = {}
    for term in estimate.peak.terms:
        kind = term.path.split("/")[0]
        kinds[kind] = kinds.get(kind, 0) + term.bytes
    for kind in sorted(kinds, key=lambda k: -kinds[k]):
        for key in BLAME.get(kind, ()):
            if key in known and not (key == "micro_batch" and estimate.asked.get(key) == 1):
                return (*known[key], key)
    for key in ("hardware.gpu", "model"):
        if key in known:
            return (*known[key], key)
    return path, 1, ""


def _place(name: str, refusal: str) -> tuple[str, int, str]:
    """File, line and reason of a message that begins with its place."""
    match = re.match(rf"{re.escape(name)}(?::(\d+))?: (.*)", refusal, flags=re.DOTALL)
    return (name, int(match[1] or 1), match[2]) if match else (name, _line_of(name, refusal), refusal)


def _line_of(path: str, refusal: str) -> int:
    """The line of the key that a message begins with (``sharding.tp: …``)."""
    try:
        lines: Mapping[Any, int] = read_yaml(path).lines
    except InputError:
        return 1
    place = tuple(refusal.split(":", 1)[0].strip().split("."))
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)
