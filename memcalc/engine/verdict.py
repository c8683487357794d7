"""From allocated bytes to what the card shows, and whether it fits."""

from __future__ import annotations

from memcalc.engine.result import RankEstimate, Term, Verdict
from memcalc.specs.job import Job


def reserved_terms(job: Job, rank: RankEstimate) -> tuple[Term, ...]:
    """What the caching allocator adds."""
    return ()


def device_terms(job: Job) -> tuple[Term, ...]:
    """What stands outside the allocator."""
    return ()


def verdict_for(job: Job, rank: RankEstimate) -> Verdict | None:
    """Whether the most loaded rank fits the card."""
    if job.run.hardware.gpu is None:
        return None
    from memcalc.specs.gpus import find_gpu

    gpu = find_gpu(job.run.hardware.gpu)
    return Verdict(gpu.name, gpu.capacity_bytes, rank.device_bytes)
