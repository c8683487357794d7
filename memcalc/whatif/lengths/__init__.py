"""A run over the lengths that its data has: the peak batch by batch, the chance that one of an epoch does not fit, and what makes it safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.engine.resolve import resolve
from memcalc.specs.job import Job
from memcalc.specs.run import Run
from memcalc.units import round_up
from memcalc.whatif.fit import Room, granule, highest_between, largest, needs, plays, room_for
from memcalc.whatif.lengths import order
from memcalc.whatif.lengths.samplers import NAMES, Sampler, TokenBudget, sampler_of

if TYPE_CHECKING:
    from memcalc.whatif.fit import Bools
    from memcalc.whatif.lengths.distribution import Distribution, Floats, Ints

SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
"""Quantiles of batches that are told."""
STEPS = (1, 10, 100, 1000, 10_000, 100_000)
"""Steps by which it is told how likely one that does not fit has come."""
GRID = 1024
"""Lengths at which what is needed is looked at; between two of them the longer one's need stands for both."""

MAX_TOKENS, MAX_BATCH, LOOKS = 1 << 27, 1 << 16, 64
"""No larger budget and no larger batch of a bucket is looked for; into how many parts of a bound a budget is played."""

SHAPES, PARTS = 128, 4096
"""Lengths at which a budget is tried, and parts of itself to within which it is found."""

SHORTEST, MIN_EDGE = 0.05, 16
"""The quantile of samples at which buckets begin, and the shortest of a power of two."""


class Point(NamedTuple):
    """Batches up to one quantile.

    Attributes:
        share: of all batches.
        sequences, length: of the batch.
        need_bytes: what the card must offer for it.
    """

    share: float
    sequences: int
    length: int
    need_bytes: int


class Bucket(NamedTuple):
    """Samples up to a length, in batches of their own size.

    Attributes:
        length: of the longest.
        sequences: as many as fit; 0 where not one does.
        share: of all samples.
        need_bytes: what a full batch of them needs.
    """

    length: int
    sequences: int
    share: float
    need_bytes: int


class Spread(NamedTuple):
    """A run over a distribution of lengths.

    Attributes:
        job, room: the run and its card.
        found: the lengths.
        sampler: who makes batches.
        points: the peak at quantiles of batches, the widest last.
        safe_length: the longest sample that fits in this run's batches; 0 where none does.
        chance: that some batch of an epoch does not fit.
        by_step: the same up to some steps.
        expected_step: the step before which the first too long one comes on average; None where none comes.
        cut_samples, cut_tokens: shares that truncation at the safe length cuts.
        budget: tokens of a batch, padding included, that are safe in every shape of these lengths; 0 where the longest sample alone does not fit.
        buckets: the plan of dynamic batches.
    """

    job: Job
    room: Room
    found: Distribution
    sampler: Sampler
    points: tuple[Point, ...]
    safe_length: int
    chance: float
    by_step: tuple[tuple[int, float], ...]
    expected_step: float | None
    cut_samples: float
    cut_tokens: float
    budget: int
    buckets: tuple[Bucket, ...]

    @property
    def survives(self) -> bool:
        """Whether every batch that may come fits."""
        return self.chance == 0.0


def spread(
    run: Run,
    found: Distribution,
    *,
    sampler: str = "random",
    budget: int | None = None,
    limit_bytes: int | None = None,
    margin: float = 0.0,
) -> Spread:
    """What a distribution of lengths makes of a run.

    Args:
        run: its length does not matter; its card does.
        found: the lengths.
        sampler: random, length-grouped or token-budget.
        budget: tokens of a batch of the last; by default the run's own batch and length.
        limit_bytes, margin: as for `limits`.

    Raises:
        InputError: no card and no limit, or the run cannot be.
    """
    room = room_for(run, limit_bytes=limit_bytes, margin=margin)
    job = resolve(run)
    made = sampler_of(sampler, batch=job.micro_batch, grad_accum=run.grad_accum, budget=budget or job.micro_batch * job.seq_len)
    sequences, lengths, shares = made.shapes(found)
    needed = _needed(job, sequences, lengths)
    fits = needed <= room.room_bytes
    safe = _safe(job, room, found, made)
    epoch = order.Epoch(found.num_samples, _bad(found, sequences * shares, fits, safe if not isinstance(made, TokenBudget) else None), found.known)
    every = max(round(float((sequences * shares).sum()) * int(job.mesh.dp) * run.grad_accum), 1)
    by_step = tuple((step, made.by_step(epoch, step * every)) for step in STEPS if step * every < found.num_samples)
    before = order.expected_before(epoch)
    lost = (found.counts * (found.lengths - safe).clip(min=0)).sum() / (found.counts * found.lengths).sum()
    return Spread(
        job,
        room,
        found,
        made,
        tuple(_points(sequences, lengths, shares, needed)),
        safe,
        order.any_bad(epoch, found.num_samples),
        by_step,
        None if before is None else before / every,
        1.0 - found.share_up_to(safe) if safe else 1.0,
        float(lost),
        _budget(job, room, lengths),
        tuple(_buckets(job, room, found)),
    )


# ---------------------------------------------------------------------- inside
def _bad(found: Distribution, samples: Floats, fits: Bools, safe: int | None) -> float:
    """Samples whose batch does not fit: those that are longer than what is safe, or by the batches that hold them."""
    if safe is not None:
        return found.num_longer(safe) if found.known else found.num_samples * (1.0 - found.share_up_to(safe))
    return found.num_samples * float(samples[~fits].sum() / samples.sum())


def _needed(job: Job, sequences: Ints, lengths: Ints) -> Ints:
    """What each shape needs; of many lengths, evenly spread ones, each for those before it."""
    import numpy as np

    unit = granule(job)
    padded = round_up(lengths, unit)
    if len(lengths) <= GRID:
        return needs(job, sequences, padded)
    last = len(lengths) - 1
    by_place, by_length = np.linspace(0, last, GRID // 2), np.searchsorted(lengths, np.linspace(1, lengths[-1], GRID // 2))
    at = np.unique(np.concatenate([by_place, by_length, [last]]).astype(np.int64).clip(0, last))
    return needs(job, sequences[at], padded[at])[np.searchsorted(at, np.arange(last + 1))]


def _safe(job: Job, room: Room, found: Distribution, made: Sampler) -> int:
    """The longest sample, up to the longest there is, that fits in a batch of the sampler's."""
    import numpy as np

    unit = granule(job)
    most = round_up(found.longest, unit)

    def sequences(length: Any) -> Any:
        return np.maximum(made.budget // length, 1) if isinstance(made, TokenBudget) else np.full_like(length, job.micro_batch)

    def goes(length: int) -> bool:
        length = max(length // unit * unit, unit)
        return plays(replace(job, micro_batch=int(sequences(np.asarray(length))), seq_len=length), room.room_bytes)

    bound = largest(lambda seq: needs(job, sequences(seq), seq) <= room.room_bytes, cap=most, step=unit)
    return min(_played(goes, bound) // unit * unit, found.longest)


def _points(sequences: Ints, lengths: Ints, shares: Floats, needed: Ints) -> list[Point]:
    """Batches in the order of what they need."""
    import numpy as np

    rising = np.argsort(needed, kind="stable")
    below = np.cumsum(shares[rising])
    found = []
    for share in SHARES:
        at = rising[min(int(np.searchsorted(below, share * below[-1] * (1 - 1e-12))), len(rising) - 1)]
        found.append(Point(share, int(sequences[at]), int(lengths[at]), int(needed[at])))
    return found


def _budget(job: Job, room: Room, lengths: Ints) -> int:
    """The most tokens of which every shape fits, as many sequences of a length as they hold: more never need less."""
    import numpy as np

    unit = granule(job)
    some = round_up(lengths[np.unique(np.linspace(0, len(lengths) - 1, SHAPES).astype(np.int64))], unit)
    longest = int(some[-1])

    def fits(tokens: int) -> bool:
        return bool((needs(job, np.maximum(tokens // some, 1), some) <= room.room_bytes).all())

    if not fits(longest):
        return 0
    high = longest
    while fits(2 * high) and high < MAX_TOKENS:
        high *= 2
    unit = max(high // PARTS, 1)
    bound = unit * highest_between(lambda n: fits(n * unit), high // unit, 2 * high // unit)
    return _played(lambda tokens: plays(replace(job, micro_batch=max(tokens // longest, 1), seq_len=longest), room.room_bytes), bound)


def _played(goes: Callable[[int], bool], bound: int) -> int:
    """The highest value up to a bound with which the caching allocator gets by, to within a small share of it."""
    if not bound or goes(bound):
        return bound
    unit = max(bound // LOOKS, 1)
    return unit * highest_between(lambda n: n == 0 or goes(n * unit), 0, bound // unit)


def _buckets(job: Job, room: Room, found: Distribution) -> list[Bucket]:
    """Lengths up to powers of two, and up to the longest, each with the largest batch that fits."""
    import numpy as np

    unit, edges = granule(job), []
    edge = max(1 << found.quantile(SHORTEST).bit_length(), MIN_EDGE)
    while edge < found.longest:
        edges.append(edge)
        edge *= 2
    plan, before = [], 0.0
    for length in (*edges, found.longest):
        padded = round_up(length, unit)
        most = largest(lambda batch, padded=padded: needs(job, batch, np.full_like(batch, padded)) <= room.room_bytes, cap=MAX_BATCH)  # type: ignore[misc]
        up_to = found.share_up_to(length)
        need = int(needs(job, np.asarray([max(most, 1)]), np.asarray([padded]))[0])
        plan.append(Bucket(length, most, up_to - before, need))
        before = up_to
    return plan


__all__ = ["NAMES", "Bucket", "Point", "Spread", "spread"]
