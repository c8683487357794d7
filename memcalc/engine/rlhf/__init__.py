"""Preference and reinforcement learning: several models, several phases, one card.

Each role is a job of its own, which the engine estimates as it does any other; a phase is what all roles hold between their passes, and the pass of
the one that works.
"""

from __future__ import annotations

from memcalc.engine.rlhf.tasks import TASKS
from memcalc.engine.walk import Walked
from memcalc.specs.job import Job


def walk(job: Job, *, detailed: bool = True) -> list[Walked]:
    """Every kind of rank through the phases of a job that has a cast."""
    from memcalc.engine.rlhf import offline, online
    from memcalc.engine.rlhf.stage import kinds_of

    assert job.cast is not None
    go = online.walk if TASKS[job.cast.run.task].is_online else offline.walk
    return [go(job, detailed=detailed, kind=kind) for kind in kinds_of(job)]
