"""Walking through a step: what is alive now, and the most that was alive since the last mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.dataclass import dataclass
from memcalc.tape.span import Span, maximum
from memcalc.tape.tensor import Record

if TYPE_CHECKING:
    from memcalc.engine.plan import Plan
    from memcalc.engine.result import Term
    from memcalc.engine.strategies import Strategy


@dataclass(frozen=True)
class Reason:
    """Why a term has its bytes: a formula in names, the numbers put in, and where it comes from."""

    formula: str
    inputs: dict[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass
class Snapshot:
    """Bytes alive at one instant, in all and (for single answers) by path."""

    total: Any
    by_path: dict[str, int]


class Walk:
    """Bytes that are alive, changed event by event.

    Args:
        detailed: keep them by path; off when sizes are arrays, where only totals are asked for.
    """

    def __init__(self, *, detailed: bool = True) -> None:
        self.detailed = detailed
        self.total: Any = 0
        self.by_path: dict[str, int] = {}
        self.reasons: dict[str, Reason] = {}
        self.records: dict[str, list[Record]] = {}
        self.instants: dict[str, Snapshot] = {}
        self._peak: Any = 0
        self._at_peak: dict[str, int] = {}

    # ------------------------------------------------------------------ changes
    def alloc(self, path: str, num_bytes: Any, reason: Reason | None = None) -> None:
        """Bytes are born under a path; several under one path add up."""
        self._add(path, num_bytes)
        if reason is not None:
            self.reasons[path] = reason
        self._look(0, {})

    def keep(self, source: str, path: str, num_bytes: Any, reason: Reason | None = None) -> None:
        """Bytes of a source live on under a path when the source dies next."""
        self.alloc(path, num_bytes, reason)

    def free(self, path: str, num_bytes: Any = None) -> None:
        """Bytes of a path die: so many, or all of them (only where paths are kept)."""
        self._add(path, -(self.by_path.get(path, 0) if num_bytes is None else num_bytes))

    def touch(self, path: str, num_bytes: Any, reason: Reason | None = None) -> None:
        """Bytes that are there for a moment only."""
        if reason is not None:
            self.reasons[path] = reason
        self._look(num_bytes, {path: num_bytes} if self.detailed else {})

    def beside(self, other: Snapshot) -> None:
        """What another walk took down is there for a moment, on top of what is alive here."""
        self._look(other.total, other.by_path)

    def add(self, by_path: dict[str, int], total: Any, times: int) -> None:
        """So many times the bytes of these paths are born (or die, where `times` is negative)."""
        self.total = self.total + total * times
        if self.detailed:
            for path, n in by_path.items():
                self._add_path(path, n * times)
        self._look(0, {})

    def apply(self, span: Span) -> None:
        """A recorded stretch happens."""
        self._look(span.peak, span.at_peak)
        self.total = self.total + span.net
        if self.detailed:
            for path, n in span.changes.items():
                self._add_path(path, n)
            self.records.update(span.records)

    def repeat(self, times: int, body: Callable[[int], None]) -> None:
        """``body(0) … body(times − 1)``, where all but the ends change memory alike.

        Memory is linear in the index between the ends, so the most that is alive stands near one of them: the first three and the
        last two are run, the change of the third is multiplied for those between.
        """
        if times <= 5:
            for i in range(times):
                body(i)
            return
        body(0)
        body(1)
        before, paths = self.total, dict(self.by_path)
        body(2)
        skipped = times - 5
        self.total = self.total + (self.total - before) * skipped
        for path in {*paths, *self.by_path}:
            change = self.by_path.get(path, 0) - paths.get(path, 0)
            if change:
                self._add_path(path, change * skipped)
        body(times - 2)
        body(times - 1)

    # ------------------------------------------------------------------ readings
    def instant(self, name: str) -> None:
        """Take down what is alive now."""
        self.instants[name] = Snapshot(self.total, self._kept(self.by_path))

    @contextmanager
    def window(self, name: str) -> Iterator[None]:
        """Take down the most that is alive at any time inside."""
        self._peak, self._at_peak = self.total, dict(self.by_path)
        yield
        self.instants[name] = Snapshot(self._peak, self._kept(self._at_peak))

    # ------------------------------------------------------------------ inside
    def _add(self, path: str, num_bytes: Any) -> None:
        self.total = self.total + num_bytes
        if self.detailed:
            self._add_path(path, num_bytes)

    def _add_path(self, path: str, num_bytes: int) -> None:
        self.by_path[path] = self.by_path.get(path, 0) + num_bytes

    def _look(self, extra: Any, paths: dict[str, int]) -> None:
        now = self.total + extra
        if not self.detailed:
            self._peak = maximum(self._peak, now)
        elif now > self._peak:
            self._peak, self._at_peak = now, dict(self.by_path)
            for path, n in paths.items():
                self._at_peak[path] = self._at_peak.get(path, 0) + n

    @staticmethod
    def _kept(paths: dict[str, int]) -> dict[str, int]:
        return {path: n for path, n in paths.items() if n}


class Walked(NamedTuple):
    """One kind of rank, gone through its step.

    Attributes:
        rank: its coordinates.
        num_ranks: how many there are of it.
        walk: with its readings.
        plan, strategy: what it ran, to be played again.
        others_bytes: of other models, which stand beside that.
        host: what these keep in the host's memory.
    """

    rank: dict[str, int]
    num_ranks: Any
    walk: Walk
    plan: Plan
    strategy: Strategy
    others_bytes: Any = 0
    host: tuple[Term, ...] = ()

    @property
    def peak_bytes(self) -> int:
        """The most alive at any instant; sizes are ints."""
        return max(int(shot.total) for shot in self.walk.instants.values())
