"""A recorded stretch, summed up: what it leaves behind, and the most it needs on the way."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from memcalc.dataclass import dataclass
from memcalc.tape.tensor import Event, Record


def maximum(a: Any, b: Any) -> Any:
    """The larger, elementwise where either is an array.

    >>> maximum(3, 5)
    5
    """
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    import numpy

    return numpy.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller, elementwise where either is an array.

    >>> minimum(3, 5)
    3
    """
    return -maximum(-a, -b)


@dataclass
class Span:
    """The effect of a stretch of events on memory.

    Attributes:
        net: bytes allocated less bytes freed (int or array).
        peak: the most above the start at any time, at least 0.
        changes: net bytes by path; only for ints.
        at_peak: bytes by path at that time, relative to the start; only for ints.
        records: for each path, the storages behind it, to explain it by.
        events: what it sums up; only for ints.
    """

    net: Any = 0
    peak: Any = 0
    changes: dict[str, int] = field(default_factory=dict)
    at_peak: dict[str, int] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


def sum_up(events: list[Event]) -> Span:
    """The span of a list of events."""
    if all(isinstance(record.num_bytes, int) for _, record in events):
        return _sum_ints(events)
    span = Span()
    for sign, record in events:
        if sign > 0:
            span.net = span.net + record.num_bytes
            span.peak = maximum(span.peak, span.net)
        elif sign < 0:
            span.net = span.net - record.num_bytes
    return span


def split(events: list[Event]) -> list[tuple[Span, Record | None]]:
    """The stretches between marks, each with the mark that ends it (None after the last)."""
    parts: list[tuple[Span, Record | None]] = []
    begin = 0
    for i, (sign, record) in enumerate(events):
        if sign == 0:
            parts.append((sum_up(events[begin:i]), record))
            begin = i + 1
    parts.append((sum_up(events[begin:]), None))
    return parts


def _sum_ints(events: list[Event]) -> Span:
    net = peak = 0
    when = -1
    for i, (sign, record) in enumerate(events):
        net += sign * record.num_bytes
        if net > peak:
            peak, when = net, i
    span = Span(net, peak, events=events)
    running: dict[str, int] = {}
    for i, (sign, record) in enumerate(events):
        running[record.path] = running.get(record.path, 0) + sign * record.num_bytes
        if sign > 0:
            span.records.setdefault(record.path, []).append(record)
        if i == when:
            span.at_peak = {path: n for path, n in running.items() if n}
    span.changes = {path: n for path, n in running.items() if n}
    return span
