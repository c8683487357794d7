"""The loss jumps. By itself that takes no byte; what it sets off does, and is listed under its own name."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "loss"


def incidents(s: Situation) -> Iterator[Incident]:
    """Nothing, and where to look."""
    brings = ["logging (norms, histograms)", "checkpoint-save"]
    if "float16" in (s.job.run.dtype, s.job.run.autocast):
        brings.insert(0, "fp16-overflow")
    yield s.nothing("loss-spike", "the loss spikes", "optimizer_step", f"takes nothing itself; it may bring {', '.join(brings)}")
