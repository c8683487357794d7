"""Lengths that change from step to step, played through the caching allocator: pieces that no new size fits into, with and without growing segments."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.engine.resolve import resolve
from memcalc.engine.verdict import reservation
from memcalc.specs.read import read_run
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "allocator"


def incidents(s: Situation) -> Iterator[Incident]:
    """What is reserved beyond what is allocated, once steps of several lengths have been there (`memcalc.engine.lengths`)."""
    if s.job.mesh.pp > 1:
        yield s.spared("fragmentation", "sequence lengths vary", "a pipeline's micro-batches are of one size")
        return
    peak = s.peak[1]
    for name, expandable in (("segments", False), ("expandable", True)):
        title = f"lengths vary, {'expandable_segments:True' if expandable else 'fixed segments'}"
        job = resolve(read_run(s.run, lengths=s.run.lengths or {}, expandable_segments=expandable))
        found = reservation(job, s.loaded, peak, capacity_bytes=s.room.room_bytes)
        extra = {term.path: term.bytes for term in found.terms}
        need = peak + s.outside + sum(extra.values())
        survives = s.fits and not found.wanted_bytes and need <= s.room.room_bytes
        times = f"unused segments are given back {found.num_releases} times, which costs time" if found.num_releases else ""
        yield Incident(f"fragmentation/{name}", title, s.peak[0], extra, peak, need, survives, times, source="played through the caching allocator")
