"""What a change does to runs: their answers before, kept as a snapshot, and now. Answers as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.files import read_text

VERSION = 1
MAX_BYTES = 64 * 2**20


class State(NamedTuple):
    """A run's answer, as a snapshot holds it.

    Attributes:
        model, instant: its name, and when the peak is.
        allocated_bytes: at the peak of the most loaded rank.
        device_bytes: on the card; None where none was named.
        capacity_bytes: of the card or limit.
        fits: whether it does.
        terms: bytes at the peak by path.
        refused: why there is no answer.
    """

    model: str = ""
    instant: str = ""
    allocated_bytes: int = 0
    device_bytes: int | None = None
    capacity_bytes: int | None = None
    fits: bool | None = None
    terms: Mapping[str, int] = {}
    refused: str = ""


class Change(NamedTuple):
    """One run before and now; None where there was, or is, none."""

    name: str
    before: State | None
    now: State | None

    def terms(self) -> Iterator[tuple[str, int, int]]:
        """Paths whose bytes differ, with both, the largest difference first."""
        before, now = (state.terms if state is not None else {} for state in (self.before, self.now))
        found = [(path, before.get(path, 0), now.get(path, 0)) for path in dict.fromkeys([*before, *now])]
        yield from sorted((t for t in found if t[1] != t[2]), key=lambda t: -abs(t[2] - t[1]))


def state_of(estimate: Estimate | None, refused: str = "") -> State:
    """The answer of a run."""
    if estimate is None:
        return State(refused=refused)
    terms: dict[str, int] = {}
    for term in estimate.peak.terms:
        terms[term.path] = terms.get(term.path, 0) + term.bytes
    state = State(estimate.model.name, estimate.peak.name, estimate.peak.allocated_bytes, terms=terms)
    verdict = estimate.verdict
    if verdict is None:
        return state
    return state._replace(device_bytes=verdict.device_bytes, capacity_bytes=verdict.capacity_bytes, fits=verdict.fits)


def snapshot(states: Mapping[str, State]) -> str:
    """Answers as JSON, for `read_snapshot`."""
    return json.dumps({"schema_version": VERSION, "runs": {name: state._asdict() for name, state in states.items()}}, indent=1, ensure_ascii=False)


def read_snapshot(path: str) -> dict[str, State]:
    """The answers in a file.

    Raises:
        InputError: it is not one that `snapshot` wrote.
    """
    text = read_text(path, max_bytes=MAX_BYTES, what="snapshot of memcalc diff")
    wrong = InputError("is not a snapshot: write one with `memcalc diff RUN… --format json`", where=path)
    try:
        data: Any = json.loads(text)
        if data["schema_version"] != VERSION:
            raise InputError(f"is of version {data['schema_version']}, not {VERSION}; write it again with `memcalc diff RUN… --format json`", where=path)
        return {str(name): _state(fields) for name, fields in data["runs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise wrong from None


def changes(before: Mapping[str, State], now: Mapping[str, State]) -> list[Change]:
    """Runs whose answer changed; those that are only in the snapshot are not looked at, since fewer may have been asked for."""
    return [Change(name, before.get(name), state) for name, state in now.items() if before.get(name) != state]


def _state(fields: Mapping[str, Any]) -> State:
    state = State(**fields)
    terms = {str(path): int(num_bytes) for path, num_bytes in state.terms.items()}
    return state._replace(terms=terms, allocated_bytes=int(state.allocated_bytes), instant=str(state.instant))
