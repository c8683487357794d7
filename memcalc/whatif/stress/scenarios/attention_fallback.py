"""The fused attention kernel is not taken: a mask, a head size or a dtype that it does not have. The whole step in eager attention."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "attention"


def incidents(s: Situation) -> Iterator[Incident]:
    """Every layer eager; and, under sdpa, a mask that the kernel could do without."""
    if s.job.run.attention == "eager":
        yield s.spared("attention-fallback/eager", "attention falls back to the eager kernel", "it is eager already")
    else:
        yield s.instead("attention-fallback/eager", "attention falls back to the eager kernel", {"attention": "eager"})
    if s.job.run.attention == "sdpa" and not s.job.run.attention_mask:
        yield s.instead("attention-fallback/mask", "a padded batch brings an attention mask", {"attention_mask": True})
