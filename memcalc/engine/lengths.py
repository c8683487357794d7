"""Steps whose sequences differ in length: what each makes is of other sizes, and the caching allocator keeps segments for all of them.

A batch that is padded to its own longest sequence is as long as that. The lengths are spread over the distribution as the van der Corput
sequence spreads numbers over the unit interval (Niederreiter, Random Number Generation and Quasi-Monte Carlo Methods, 1992, section 3.1):
each lies in the largest gap that those before it left, and nothing depends on a seed. The longest comes last.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, sqrt
from statistics import NormalDist

from memcalc.engine.plan import Plan
from memcalc.engine.strategies import Strategy
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.run import LengthsSpec

NUM_LENGTHS = 8
"""Lengths that are played, the longest among them. A convention: every further one that is longer than all before it reserves more."""


def lengths_of(spec: LengthsSpec, longest: int, batch: int) -> tuple[int, ...]:
    """Lengths of micro-batches in the order of the steps, but for the longest, which comes after them.

    Args:
        spec: how those of single sequences are spread.
        longest: sequences that are longer are left out.
        batch: sequences of a micro-batch, which is as long as its longest.

    Raises:
        InputError: none is as short as `longest`.
    """
    if spec.min > longest:
        raise InputError(f"no sequence is shorter than {spec.min}, and seq_len is {longest}", where="lengths.min")
    drawn = (_quantile(spec, longest, _van_der_corput(i) ** (1 / batch)) for i in range(1, NUM_LENGTHS))
    return tuple(min(max(int(length), spec.min), longest) for length in drawn)


def steps_of(job: Job) -> tuple[tuple[Plan, Strategy], ...]:
    """What a rank runs in each step before that of the longest; none where all are alike."""
    from memcalc.engine.estimate import walk_ranks

    spec = job.run.lengths
    if spec is None:
        return ()
    found = []
    for length in lengths_of(spec, job.seq_len, job.micro_batch):
        walked = walk_ranks(replace(job, seq_len=length))[0]
        found.append((walked.plan, walked.strategy))
    return tuple(found)


def _quantile(spec: LengthsSpec, longest: int, part: float) -> float:
    """The length that so large a part of the sequences does not exceed: log-normal between the bounds, or even where no mean is known.

    >>> _quantile(LengthsSpec(min=100), 300, 0.5)
    200.0
    """
    if spec.mean is None or spec.std is None:
        return spec.min + part * (longest - spec.min)
    variance = log(1 + (spec.std / spec.mean) ** 2)
    shape = NormalDist(log(spec.mean) - variance / 2, sqrt(variance))
    low, high = shape.cdf(log(spec.min)), shape.cdf(log(longest))
    return exp(shape.inv_cdf(low + part * (high - low)))


def _van_der_corput(n: int) -> float:
    """The binary digits of n, mirrored at the point.

    >>> [_van_der_corput(n) for n in range(1, 5)]
    [0.5, 0.25, 0.75, 0.125]
    """
    found, place = 0.0, 0.5
    while n:
        found, place, n = found + place * (n & 1), place / 2, n >> 1
    return found
