"""After a crash: what the messages in a log mean, which of the run's tensors could not be had, and where in the step. Answers as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from memcalc.engine.estimate import estimate_job, host_bytes, rank_estimate, walk_ranks
from memcalc.engine.resolve import SERVERS, resolve
from memcalc.engine.walk import Walked
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.diagnose import log
from memcalc.whatif.diagnose.causes import Asked, Cause, Scene, causes
from memcalc.whatif.diagnose.log import Crash
from memcalc.whatif.diagnose.match import Match, matches
from memcalc.whatif.diagnose.position import Position, position_of
from memcalc.whatif.fit import highest_between, need, plays, room_for
from memcalc.whatif.sweep import outside_bytes

LENGTHS = 128
"""The longest sequence that fits is found to within the run's length over this."""

SHOWN: dict[str, dict[str, Any]] = {"checkpoint save": {"checkpoint_save": "full"}, "evaluation": {"evaluation": {}}}
"""Keys that show the instant of a position, where a step has none."""


class Finding(NamedTuple):
    """One failure.

    Attributes:
        crash: the message, with its rank, line and step.
        position: where in the step the traceback stands.
        asked: the run and its estimate, with the instant of that position, where a run was given.
        matches: the run's tensors that have the size that failed, the likeliest first, near misses last.
        causes: what it comes from, the most telling first.
    """

    crash: Crash
    position: Position | None
    asked: Asked | None
    matches: tuple[Match, ...]
    causes: tuple[Cause, ...]


class Diagnosis(NamedTuple):
    """What a log says.

    Attributes:
        findings: a failure each, in the order of the log; one message for each rank.
        limit_bytes: what the cards have, by the messages; None where none says it.
        num_lines: of the log.
    """

    findings: tuple[Finding, ...]
    limit_bytes: int | None
    num_lines: int


def diagnose(lines: Iterable[str], run: Run | None = None) -> Diagnosis:
    """What the out-of-memory messages of a log mean.

    Args:
        lines: of the log; they are read once and not kept.
        run: the job that wrote it.

    Raises:
        InputError: the run cannot be.
    """
    counted = _Counted(lines)
    crashes = log.told_apart(log.read(counted))
    usage = tuple(crash for crash in crashes if crash.message.kind == "usage")
    failures = [crash for crash in crashes if crash.message.kind != "usage"]
    told = [crash.message.capacity.bytes for crash in failures if crash.message.kind == "device" and crash.message.capacity is not None]
    limit = min(told, default=None)
    job = resolve(run) if run is not None else None
    known: dict[str, tuple[Asked, list[Walked]]] = {}
    findings = []
    for crash in failures:
        position = position_of(crash.frames, crash.text)
        beside = position.name if position is not None and position.name in SHOWN else ""
        if job is not None and beside not in known:
            known[beside] = _asked(_showing(run, job, beside), limit)
        asked, walked = known.get(beside, (None, []))
        m = crash.message
        found = matches(asked.job, walked, m.wanted, position=position, allocated=m.allocated) if asked is not None and m.wanted is not None else []
        scene = Scene(crash, position, usage, asked, tuple(found))
        findings.append(Finding(crash, position, asked, tuple(found), tuple(causes(scene))))
    return Diagnosis(tuple(findings), limit, counted.number)


# ---------------------------------------------------------------------- inside
class _Counted:
    """Lines, counted as they go by."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines, self.number = iter(lines), 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.number += 1
        return line


def _showing(run: Run | None, job: Job, position: str) -> Job:
    """The job with the instant of a position, where its engine knows one."""
    try:
        return resolve(read_run(run, **SHOWN[position])) if position in SHOWN else job
    except InputError:
        return job


def _asked(job: Job, limit_bytes: int | None) -> tuple[Asked, list[Walked]]:
    """The job with what its estimate says, and its ranks gone through their step; a server has none."""
    if job.run.code in SERVERS:
        served = estimate_job(job)
        room = served.verdict.capacity_bytes if served.verdict is not None else limit_bytes or 0
        fits = served.verdict is None or served.verdict.fits
        weights = served.instant("load").allocated_bytes
        return Asked(job, served.most_loaded.device_bytes, served.peak.name, room, fits, job.seq_len, served.host_bytes, served.serving, weights), []
    walked = walk_ranks(job)
    loaded = max(walked, key=attrgetter("peak_bytes"))
    shots = {name: int(shot.total) for name, shot in loaded.walk.instants.items()}
    instant = max(shots, key=lambda name: shots[name])
    needed = shots[instant] + outside_bytes(job)
    on_host = host_bytes(job, [rank_estimate(job, one) for one in walked])
    try:
        room = room_for(job.run, limit_bytes=limit_bytes).room_bytes
    except InputError:
        return Asked(job, needed, instant, 0, fits=True, fitting_seq_len=job.seq_len, host_bytes=on_host), walked
    fits = needed <= room and plays(job, room)
    return Asked(job, needed, instant, room, fits, job.seq_len if fits else _fitting(job, room), on_host), walked


def _fitting(job: Job, room_bytes: int) -> int:
    """A sequence below the run's own that fits where one a little longer does not; 0 where none fits."""
    step: int = max(job.mesh.tp * job.mesh.cp * 2, 16)
    step *= max(1, job.seq_len // step // LENGTHS)
    return step * highest_between(lambda n: n == 0 or need(replace(job, seq_len=n * step)) <= room_bytes, 0, job.seq_len // step)


__all__ = ["SHOWN", "Diagnosis", "Finding", "diagnose"]
