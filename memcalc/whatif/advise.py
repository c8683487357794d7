"""A run that does not fit, walked down the ladder: what each rung saves, and the shortest sequence of rungs that fits. Answers as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from memcalc.engine.estimate import walk_ranks
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.fit import Room, plays, room_for
from memcalc.whatif.ladder import RUNGS, Keys, Rung
from memcalc.whatif.sweep import outside_bytes

MAX_RUNGS, MAX_TRIED = 4, 400
"""Rungs in a sequence, and sequences of one length that are tried."""


class Taken(NamedTuple):
    """One rung, taken alone.

    Attributes:
        rung: which.
        keys: what is changed: the mildest variant that suffices, else the one that saves most.
        saves_bytes: by how much the peak falls.
        at_instant_bytes: by how much what is alive falls at the instant of the peak before.
        need_bytes: what is needed then.
        suffices: whether that fits.
    """

    rung: Rung
    keys: Keys
    saves_bytes: int
    at_instant_bytes: int
    need_bytes: int
    suffices: bool


class Advice(NamedTuple):
    """What to change.

    Attributes:
        job: the run as resolved.
        room: what it may take.
        need_bytes: the least that it needs.
        instant: when.
        fits: whether it fits as it is, played through the caching allocator.
        rungs: each rung that lowers what is alive at the peak, by itself.
        path: the shortest sequence that fits, from cheap to dear; empty where none does, or none is needed.
        path_need_bytes: what is needed then.
        changed: the run with all of the path; None where there is none.
    """

    job: Job
    room: Room
    need_bytes: int
    instant: str
    fits: bool
    rungs: tuple[Taken, ...]
    path: tuple[tuple[Rung, Keys], ...]
    path_need_bytes: int
    changed: Run | None


def advise(run: Run, *, limit_bytes: int | None = None, margin: float = 0.0) -> Advice:
    """What to change in a run so that it fits.

    Raises:
        InputError: no card and no limit, or the run cannot be.
    """
    room = room_for(run, limit_bytes=limit_bytes, margin=margin)
    job = resolve(run)
    before = readings(job)
    instant = max(before, key=lambda name: before[name])
    need = before[instant] + outside_bytes(job)
    every = [taken for rung in RUNGS if (taken := _alone(rung, job, room, before)) is not None]
    rungs = tuple(taken for taken in every if taken.at_instant_bytes > 0)
    if need <= room.room_bytes and plays(job, room.room_bytes):
        return Advice(job, room, need, instant, fits=True, rungs=rungs, path=(), path_need_bytes=need, changed=None)
    path, there = _shortest([taken.rung for taken in every], job, room)
    after = _need(there) if there else 0
    return Advice(job, room, need, instant, fits=False, rungs=rungs, path=path, path_need_bytes=after, changed=there.asked if there else None)


def readings(job: Job) -> dict[str, int]:
    """Bytes at each instant, of the rank that has most then."""
    found: dict[str, int] = {}
    for one in walk_ranks(job, detailed=False):
        for name, shot in one.walk.instants.items():
            found[name] = max(found.get(name, 0), int(shot.total))
    return found


def changed(job: Job, keys: Keys) -> Job | None:
    """The job with other keys; None where that cannot be."""
    try:
        return resolve(read_run(job.asked, **keys))
    except InputError:
        return None


# ---------------------------------------------------------------------- inside
def _need(job: Job) -> int:
    return max(readings(job).values()) + outside_bytes(job)


def _tried(rung: Rung, job: Job) -> Iterator[tuple[Keys, Job, dict[str, int]]]:
    """The variants of a rung that can be."""
    for keys in rung.variants(job):
        there = changed(job, keys)
        if there is None:
            continue
        try:
            yield keys, there, readings(there)
        except InputError:
            continue


def _alone(rung: Rung, job: Job, room: Room, before: dict[str, int]) -> Taken | None:
    """By itself, where it lowers any instant: what else stands at the peak may hide it."""
    best: Taken | None = None
    lowers = False
    instant = max(before, key=lambda name: before[name])
    need = before[instant] + outside_bytes(job)
    for keys, there, now in _tried(rung, job):
        after = max(now.values()) + outside_bytes(there)
        lowers |= any(now.get(name, 0) < num_bytes for name, num_bytes in before.items())
        suffices = after <= room.room_bytes and plays(there, room.room_bytes)
        taken = Taken(rung, keys, need - after, before[instant] - now.get(instant, 0), after, suffices)
        if best is None or suffices or taken.saves_bytes > best.saves_bytes:
            best = taken
        if suffices:
            break
    return best if lowers else None


Path = tuple[tuple[Rung, Keys], ...]


def _shortest(rungs: Sequence[Rung], job: Job, room: Room) -> tuple[Path, Job | None]:
    """Of the sequences that fit, one with the fewest rungs, and of those the cheapest; what changes the task comes only after all that do not."""
    climb = _Climb(job, room)
    keeps: list[Rung] = [rung for rung in rungs if not rung.changes_task]
    for some in (keeps, list(rungs)):
        for count in range(1, MAX_RUNGS + 1):
            for sequence in islice(combinations(some, count), MAX_TRIED):
                found = climb.all_of(sequence)
                if found is not None:
                    return found
    return (), None


class _Climb:
    """Sequences of rungs one upon the other; what several begin with is walked once."""

    def __init__(self, job: Job, room: Room) -> None:
        self.room = room
        self._strongest: dict[tuple[str, ...], tuple[Path, Job] | None] = {(): ((), job)}

    def all_of(self, sequence: Sequence[Rung]) -> tuple[Path, Job] | None:
        """All rungs, each but the last as strong as it can be, the last as mild as suffices; None where that does not."""
        before = self.strongest(tuple(sequence[:-1]))
        if before is None:
            return None
        path, here = before
        for keys, there, now in _tried(sequence[-1], here):
            if max(now.values()) + outside_bytes(there) <= self.room.room_bytes and plays(there, self.room.room_bytes):
                return (*path, (sequence[-1], keys)), there
        return None

    def strongest(self, sequence: tuple[Rung, ...]) -> tuple[Path, Job] | None:
        """All rungs, each as strong as it can be; None where one cannot be."""
        names = tuple(rung.name for rung in sequence)
        if names not in self._strongest:
            before = self.strongest(sequence[:-1])
            self._strongest[names] = None if before is None else self._step(sequence[-1], *before)
        return self._strongest[names]

    @staticmethod
    def _step(rung: Rung, path: Path, here: Job) -> tuple[Path, Job] | None:
        options = [(max(now.values()), keys, there) for keys, there, now in _tried(rung, here)]
        if not options:
            return None
        _, keys, there = min(options, key=lambda option: option[0])
        return (*path, (rung, keys)), there
