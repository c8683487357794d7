"""Which of a run's tensors has the size that could not be had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from memcalc.engine.walk import Walked
from memcalc.specs.job import Job
from memcalc.whatif.diagnose import forms, tensors
from memcalc.whatif.diagnose.message import Size, request_bytes
from memcalc.whatif.diagnose.position import Position
from memcalc.whatif.diagnose.tensors import Request

NEAR, CLOSE = 0.02, 0.005
"""A near miss is at most so far off; one that is close is as likely as a size that is printed alike elsewhere in the step."""

LARGE = 0.02
"""A size tells a length only where it is at least this share of what is alive: smaller ones are some tensor's at some length, always."""

How = Literal["exact", "at another length", "near"]


class Match(NamedTuple):
    """A tensor that has the size, or nearly.

    Attributes:
        request: which.
        how: it would be printed so; it would at another length of the sequence; it is near.
        bytes: of the request, at that length.
        seq_len: the length.
        here: whether it is asked for where the traceback stands.
        alive_bytes: what the estimate has alive beside it at that instant; None where it cannot tell.
        alike: names of others of the same size.
    """

    request: Request
    how: How
    bytes: int
    seq_len: int
    here: bool
    alive_bytes: int | None
    alike: tuple[str, ...] = ()


def matches(job: Job, walked: Sequence[Walked], wanted: Size, *, position: Position | None = None, allocated: Size | None = None) -> list[Match]:
    """The tensors of a run that may be the one that failed, the likeliest first, each size once.

    Of those that would be printed alike, those come first that are asked for where the traceback stands, and beside which the estimate has alive
    what the message says was.
    """
    found: list[Match] = []
    for one in walked:
        for request in {(r.name, r.bytes): r for r in (*forms.requests(job, one), *tensors.recorded(one))}.values():
            match = _match(request, job, one, wanted, position, tells_length=allocated is None or wanted.bytes >= LARGE * allocated.bytes)
            if match is not None:
                found.append(match)
    found.sort(key=lambda m: _rank(m, wanted, position, allocated))
    return _each_once(found)


# ---------------------------------------------------------------------- inside
def _match(request: Request, job: Job, walked: Walked, wanted: Size, position: Position | None, *, tells_length: bool) -> Match | None:
    here = position is not None and bool({position.name, *position.instants} & set(request.where))
    alive = _alive(request, walked)
    if wanted.admits(request_bytes(request.bytes)) or wanted.admits(request.bytes):
        return Match(request, "exact", request.bytes, job.seq_len, here, alive)
    if request.power and not request.supposed and tells_length:
        length = round(job.seq_len * (wanted.bytes / request.bytes) ** (1 / request.power))
        num_bytes = round(request.bytes * (length / job.seq_len) ** request.power)
        if 1 < length < job.seq_len and wanted.admits(request_bytes(num_bytes)):
            return Match(request, "at another length", num_bytes, length, here, None)
    if abs(request.bytes - wanted.bytes) <= NEAR * wanted.bytes:
        return Match(request, "near", request.bytes, job.seq_len, here, alive)
    return None


def _alive(request: Request, walked: Walked) -> int | None:
    """Beside a tensor that belongs to what is alive at the peak of its instant: the rest."""
    shots = [walked.walk.instants[name] for name in request.where if name in walked.walk.instants]
    return int(shots[0].total) - request.bytes if shots else None


def _rank(match: Match, wanted: Size, position: Position | None, allocated: Size | None) -> tuple[object, ...]:
    off = abs(match.bytes - wanted.bytes)
    penalty = {"exact": 0, "at another length": 1, "near": 1 if off <= CLOSE * wanted.bytes else 3}[match.how]
    elsewhere = 2 if position is not None and not match.here else 0
    beside = abs(match.alive_bytes - allocated.bytes) if match.alive_bytes is not None and allocated is not None else 1 << 60
    # At another length the tensor that is largest for a token is the likeliest: it fails first.
    largest = -match.request.bytes if match.how == "at another length" else 0
    return (penalty + elsewhere, match.request.supposed, largest, beside, off)


def _each_once(found: Iterable[Match]) -> list[Match]:
    by_size: dict[tuple[int, How], Match] = {}
    for match in found:
        first = by_size.setdefault((match.bytes, match.how), match)
        if first is not match and match.request.name not in (first.request.name, *first.alike):
            by_size[match.bytes, match.how] = first._replace(alike=(*first.alike, match.request.name))
    return list(by_size.values())
