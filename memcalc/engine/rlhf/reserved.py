"""What the caching allocator adds where several models share a card: the actor's update is played, within what the others leave."""

from __future__ import annotations

from memcalc.engine.result import Reservation, Term
from memcalc.engine.verdict import SOURCE, reservation
from memcalc.engine.walk import Walked
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job


def reserve(job: Job, walked: Walked, allocated_bytes: int) -> Reservation:
    """What is reserved beyond the allocated bytes of the highest phase.

    Where a server takes its share, trainers give their unused segments back before it wakes: what an update leaves between blocks counts only
    where it goes beyond the highest phase.
    """
    others, gpu = walked.others_bytes, job.run.hardware.gpu
    capacity_bytes = None if gpu is None else find_gpu(gpu).capacity_bytes - others
    if job.cast is None or job.cast.server is None:
        return reservation(job, walked, allocated_bytes - others, capacity_bytes=capacity_bytes)
    update = int(walked.walk.instants["actor_update"].total)
    found = reservation(job, walked, update - others, capacity_bytes=capacity_bytes)
    more = max(update + sum(term.bytes for term in found.terms) - allocated_bytes, 0)
    return Reservation((Term("reserved/held between blocks", more, "reserved in the update - allocated", {}, SOURCE),), found.num_releases, found.wanted_bytes)
