"""Lengths that change from step to step, played through the caching allocator: pieces that no new size fits into, with and without growing segments."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.engine.allocator import OutOfMemory
from memcalc.whatif.stress.situation import Incident, Situation
from memcalc.whatif.stress.variable import LENGTHS, play_lengths

GROUP = "allocator"


def incidents(s: Situation) -> Iterator[Incident]:
    """What is reserved beyond what is allocated, after steps of several lengths."""
    if s.job.mesh.pp > 1:
        yield s.spared("fragmentation", "sequence lengths vary", "a pipeline's micro-batches are of one size")
        return
    room = s.room.room_bytes - s.outside
    for name, expandable in (("segments", False), ("expandable", True)):
        title = f"lengths vary over {len(LENGTHS)} steps, {'expandable_segments:True' if expandable else 'fixed segments'}"
        peak = s.peak[1]
        try:
            played = play_lengths(s.job, capacity_bytes=room, expandable=expandable)
        except OutOfMemory as error:
            more = {"reserved/pieces too small for what is wanted": max(error.reserved_bytes + error.num_bytes - peak, 0)}
            yield Incident(f"fragmentation/{name}", title, s.peak[0], more, peak, peak + s.outside + sum(more.values()), survives=False)
            continue
        more = {"reserved/held between blocks": max(played.peak_reserved_bytes - peak, 0)}
        times = f"unused segments are given back {played.num_releases} times, which costs time" if played.num_releases else ""
        yield Incident(f"fragmentation/{name}", title, s.peak[0], more, peak, peak + s.outside + sum(more.values()), s.fits, times)
