"""What a run that fits may still die of: lengths of samples that vary, for which the caching allocator keeps segments side by side.

An estimate is of steps of one length. Where not much of the card is left, a few steps of other lengths are played before it
(`memcalc.engine.lengths`), with fixed segments and with ones that grow.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.engine.lengths import steps_of
from memcalc.engine.result import RankEstimate, Reservation, Risk, Verdict
from memcalc.engine.verdict import reservation
from memcalc.engine.walk import Walked
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.run import LengthsSpec

NEAR = 0.8
"""The share of a card from which on lengths are played at all: below it they have not been seen to matter."""
AT_RISK = 0.9
"""The share of a card that a run is at risk beyond: nine in ten measured runs are within a tenth of the estimate (docs/accuracy.md)."""


def risk_of(job: Job, walked: Walked, rank: RankEstimate, verdict: Verdict | None) -> Risk | None:
    """What varying lengths make of a run that fits its card; None where it has room for them, or they cannot vary."""
    if verdict is None or verdict.gpu is None or not verdict.fits or verdict.device_bytes < NEAR * verdict.capacity_bytes or not _varies(job):
        return None
    try:
        steps = steps_of(_varied(job, grows=False))
    except InputError:  # a sequence is no shorter than this: its images fill it
        return None
    fixed = reservation(_varied(job, grows=False), walked, rank.allocated_bytes, steps=steps)
    if _device_bytes(rank, fixed) <= AT_RISK * verdict.capacity_bytes:
        return None
    growing = reservation(_varied(job, grows=True), walked, rank.allocated_bytes, steps=steps)
    return Risk(_device_bytes(rank, fixed), _device_bytes(rank, growing), bool(fixed.wanted_bytes))


def _varied(job: Job, *, grows: bool) -> Job:
    return replace(job, run=job.run.model_copy(update={"lengths": LengthsSpec(), "expandable_segments": grows}))


def _varies(job: Job) -> bool:
    """Samples of several lengths may come: in training, not packed, with segments as they are by default."""
    run = job.run
    plain = job.cast is None and job.mesh.pp == 1 and run.task == "train" and run.lengths is None
    return plain and not run.packing and not run.expandable_segments and run.code == "transformers"


def _device_bytes(rank: RankEstimate, reserved: Reservation) -> int:
    return rank.allocated_bytes + sum(term.bytes for term in (*reserved.terms, *rank.device))
