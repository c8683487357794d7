"""What a run that fits may still die of: incidents, each with the instant that it strikes, the bytes it brings, and whether the run survives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from memcalc.engine.resolve import SERVERS, resolve
from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.job import Job
from memcalc.specs.run import Run
from memcalc.whatif.fit import Room, room_for
from memcalc.whatif.lengths import Point, Spread
from memcalc.whatif.stress import scenarios
from memcalc.whatif.stress.situation import Incident, Situation

SAMPLES = 1000
"""Sequences of an evaluation whose logits are kept, where nobody says how many."""


class Stressed(NamedTuple):
    """A run under stress.

    Attributes:
        job: the run, resolved.
        room: what it may take.
        instant, peak_bytes, need_bytes, fits: of the run without any incident.
        longest: tokens of the longest sample that may come.
        incidents: by scenario, in the order of their groups; batches of the data first, where its lengths are given.
        spread: what those lengths make of it.
    """

    job: Job
    room: Room
    instant: str
    peak_bytes: int
    need_bytes: int
    fits: bool
    longest: int
    incidents: tuple[Incident, ...]
    spread: Spread | None = None

    @property
    def survives(self) -> bool:
        """Whether it survives all that can strike it."""
        return self.fits and all(incident.survives is not False for incident in self.incidents)


def stress(
    run: Run,
    *,
    only: Iterable[str] = (),
    limit_bytes: int | None = None,
    margin: float = 0.0,
    longest: int | None = None,
    samples: int | None = None,
    spread: Spread | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> Stressed:
    """What becomes of a training run in each incident.

    Args:
        run: training; a card is named, or a limit.
        only: names of scenarios, or of their groups; all by default.
        limit_bytes: what a card may take, at most its capacity.
        margin: the share of it that stays free.
        longest: tokens of the longest sample; by default twice the run's length.
        samples: sequences of an evaluation that keeps logits.
        spread: what the lengths of its data make of the run.
        done: told of every scenario that is through.

    Raises:
        InputError: no card and no limit, a run that does not train, an unknown scenario.
    """
    only = [word.strip() for word in only]
    chosen = names(only)
    if run.task == "inference" or run.code in SERVERS:
        raise InputError(f"incidents strike training; the task is {run.task}", where="task")
    room = room_for(run, limit_bytes=limit_bytes, margin=margin)
    job = resolve(run)
    longest = longest if longest is not None else 2 * job.seq_len
    situation = Situation(run, job, room, longest=longest, samples=samples or SAMPLES)
    found: list[Incident] = [] if spread is None else [_batch(point, situation) for point in spread.points]
    variants = {word for word in only if "/" in word}
    for name in chosen:
        of_it = {word for word in variants if word.startswith(f"{name}/")}
        found += [one for one in scenarios.every()[name].incidents(situation) if not of_it or one.name in of_it or one.survives is None]
        done(1)
    instant, peak = situation.peak
    return Stressed(job, room, instant, peak, peak + situation.outside, situation.fits, longest, tuple(found), spread)


def _batch(point: Point, s: Situation) -> Incident:
    """A quantile of batches as an incident; it strikes where the run has its peak."""
    name = "the widest" if point.share == 1 else f"{point.share * 100:g}% of all"
    more = {"activations/of this batch": point.need_bytes - s.peak[1] - s.outside}
    title = f"{name} batches: up to {point.sequences} × {point.length:,}"
    survives = point.need_bytes <= s.room.room_bytes
    return Incident(
        f"lengths/{'max' if point.share == 1 else f'p{point.share * 100:g}'}", title, s.peak[0], more, point.need_bytes - s.outside, point.need_bytes, survives
    )


def names(only: Iterable[str] = ()) -> list[str]:
    """The scenarios that some names ask for: their own, those of groups, or those of variants (``evaluation/logits``).

    Raises:
        UnknownNameError: a name of neither.
    """
    known = scenarios.every()
    wanted = [word.strip() for word in only if word.strip()]
    for word in wanted:
        if word.partition("/")[0] not in known and word not in scenarios.GROUPS:
            raise UnknownNameError("incident", word, {*known, *scenarios.GROUPS}, where="--only")
    return [name for name, module in known.items() if not wanted or any(word == module.GROUP or word.partition("/")[0] == name for word in wanted)]


__all__ = ["Stressed", "names", "stress"]
