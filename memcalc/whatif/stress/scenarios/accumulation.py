"""Gradient accumulation: the last micro-batch finds the gradients of those before; how many they are changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "schedule"


def incidents(s: Situation) -> Iterator[Incident]:
    """The last micro-batch, and the number doubled: in a pipeline more may be in flight."""
    num = s.job.run.grad_accum
    if num == 1:
        yield s.instead("accumulation/last", "the last of several micro-batches", {"grad_accum": 2}, note="grad_accum is 1: this is what 2 would bring")
    else:
        yield s.nothing("accumulation/last", f"the last of {num} micro-batches", "backward_peak", "the estimate is of that one")
    name, title = "accumulation/changed", f"grad_accum {max(num, 2)} → {2 * max(num, 2)}"
    if s.job.mesh.pp > 1:
        yield s.instead(name, title, {"grad_accum": 2 * max(num, 2)})
    else:
        yield s.nothing(name, title, "backward_peak", "nothing happens: whether gradients wait depends on there being two, not on how many")
