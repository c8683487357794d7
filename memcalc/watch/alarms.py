"""When a reading is worth a warning: it leaves the estimate's band, or a statistic jumps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

BAND = 0.05
"""The share of the estimate that a reading may differ by."""
JUMP, WINDOW, SETTLED = 8.0, 50, 5
"""A statistic jumps where it is so many times the median of so many steps, once there have been a few."""
GROWTH = 0.02
"""What is alive between steps may grow by this share of the peak before it is said."""


class Alarm(NamedTuple):
    """Something to look at.

    Attributes:
        kind: band, jump, not finite or growth.
        what: an instant, or a layer's statistic.
        value, expected: what was read, and what it was held against.
    """

    kind: str
    what: str
    value: float
    expected: float


class Alarms:
    """Looks at each step.

    Args:
        instants: the estimate's bytes by instant; none where there is no estimate.
        band: the share that a reading may differ by.
    """

    def __init__(self, instants: Mapping[str, int], *, band: float = BAND) -> None:
        self.instants, self.band = instants, band
        self._seen: dict[str, deque[float]] = {}
        self._start: int | None = None

    def of_memory(self, readings: Mapping[str, int], *, first: bool = False) -> list[Alarm]:
        """Instants outside the band, and what is alive between steps where it grows.

        Args:
            readings: bytes by instant.
            first: of the first step, which makes the optimizer's states: until then there is less than in all others.
        """
        if first:
            return []
        found = [
            Alarm("band", name, value, self.instants[name])
            for name, value in readings.items()
            if name in self.instants and abs(value - self.instants[name]) > self.band * max(self.instants[name], 1)
        ]
        start = readings.get("start")
        if start is not None:
            if self._start is None:
                self._start = start
            elif start - self._start > GROWTH * max(readings.values()):
                found.append(Alarm("growth", "start", start, self._start))
                self._start = start
        return found

    def of_statistics(self, kind: str, values: Mapping[str, float]) -> list[Alarm]:
        """Layers whose statistic jumps against its own past, or is no number."""
        found = []
        for layer, value in values.items():
            name = f"{kind} of {layer}"
            past = self._seen.setdefault(name, deque(maxlen=WINDOW))
            if not math.isfinite(value):
                found.append(Alarm("not finite", name, value, median(past) if past else 0.0))
                continue
            if len(past) >= SETTLED and value > JUMP * median(past) > 0:
                found.append(Alarm("jump", name, value, median(past)))
            past.append(value)
        return found
