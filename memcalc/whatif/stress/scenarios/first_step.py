"""The first step makes the optimizer's states; from the second on they are there in forward and backward, too."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "schedule"
AT_ONCE = ("deepspeed", "megatron")
"""Engines that make states before the first step."""


def incidents(s: Situation) -> Iterator[Incident]:
    """States by term, at the backward peak of the second step."""
    states = {path: n for path, n in s.shots["start"].by_path.items() if path.startswith("optimizer/")}
    if s.job.engine in AT_ONCE or not states:
        yield s.nothing("first-step", "states are made", "start", "they are there before the first step: it is like all others")
        return
    found = s.nothing(
        "first-step", "the second step: states made by the first are there", "backward_peak", "the estimate counts them; the first step's backward does not"
    )
    yield found._replace(extra=states)
