"""The router sends most tokens to the experts of one rank: twice, four times the even share, all of them; and what a capacity factor makes of that."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "experts"
CURE = 1.25
"""The capacity factor that is tried: one of those of Switch Transformers (Fedus et al. 2021)."""


def incidents(s: Situation) -> Iterator[Incident]:
    """Only where experts are spread over ranks; elsewhere every rank computes its own tokens, wherever they go."""
    job, title = s.job, "routing collapses"
    ep = int(job.mesh.ep)
    if not any(weight.is_expert for _, weight, _ in job.model.weights()):
        yield s.spared("moe-collapse", title, "the model has no routed experts")
        return
    if ep == 1:
        yield s.nothing(
            "moe-collapse", f"{title}: all tokens to a few experts", "backward_peak", "with ep 1 every rank computes its own tokens, wherever they go"
        )
        return
    for share in sorted({2, 4, ep}):
        if share <= ep:
            to = "all tokens" if share == ep else f"{share}× the even share"
            yield s.instead(f"moe-collapse/{'all' if share == ep else share}", f"{title}: {to} on one rank", {"expert_imbalance": float(share)})
    keys = {"expert_imbalance": float(ep), "capacity_factor": CURE}
    yield s.instead("moe-collapse/capacity", f"the same under a capacity factor of {CURE}", keys, note="the cure: what is more is dropped")
