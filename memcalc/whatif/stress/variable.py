"""Steps of changing lengths, one after the other through one caching allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memcalc.engine import step
from memcalc.engine.allocator import CachingAllocator
from memcalc.engine.estimate import walk_rank
from memcalc.engine.plan import Plan
from memcalc.engine.replay import Replay, pieces_of
from memcalc.engine.walk import Walk
from memcalc.specs.job import Job
from memcalc.units import round_up

LENGTHS = (1.0, 0.55, 0.8, 0.35, 0.9, 0.65)
"""Shares of the run's length, as a shuffled data set brings them: down and up, no two alike."""

AT_ONCE = ("deepspeed", "megatron")
"""Engines that make optimizer states before the first step."""


def play_lengths(job: Job, *, capacity_bytes: int | None, expandable: bool, lengths: Sequence[float] = LENGTHS) -> CachingAllocator:
    """The allocator after a step of each length.

    Args:
        job: training, without a pipeline; its length is the longest.
        capacity_bytes: what the card has for segments.
        expandable: ``expandable_segments:True``.
        lengths: shares of the job's length, in their order.

    Raises:
        OutOfMemory: one of them does not fit.
    """
    step_of = job.mesh.tp * job.mesh.cp * 2
    ranks = [walk_rank(replace(job, seq_len=min(round_up(round(job.seq_len * share), step_of), job.seq_len)), detailed=False) for share in lengths]
    allocator = CachingAllocator(capacity_bytes, expandable=expandable)
    now: list[Plan] = [ranks[0].plan]
    walk = Replay(allocator, lazy_states=job.engine not in AT_ONCE, pieces=lambda path, num_bytes: pieces_of(now[0], path, num_bytes))
    ranks[0].strategy.resident(walk)
    start = dict(walk.by_path)
    for one in ranks:
        now[0] = one.plan
        if one is not ranks[0]:
            one.strategy.resident(Walk(detailed=False))
        step.one(walk, one.plan, one.strategy, accumulated=job.run.grad_accum > 1)
        walk.end_step(start)
    return allocator
