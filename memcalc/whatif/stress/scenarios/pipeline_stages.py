"""The first pipeline stage holds as many micro-batches in flight as there are stages; the last one, the logits."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation, more_of

GROUP = "schedule"


def incidents(s: Situation) -> Iterator[Incident]:
    """What the first stage has more than the last."""
    title = "the first stage at full depth"
    if s.job.mesh.pp == 1:
        yield s.spared("pipeline-stages", title, "there is one stage")
        return
    first, last = (next(one for one in s.walked if one.rank.get("pp") == at) for at in (0, s.job.mesh.pp - 1))
    instant = max(first.walk.instants, key=lambda name: first.walk.instants[name].total)
    more = more_of(first.walk.instants[instant].by_path, last.walk.instants[instant].by_path)
    found = s.nothing("pipeline-stages", title, instant, "the estimate counts it already: against the last stage")
    yield found._replace(extra={path: n for path, n in more.items() if path.startswith("activations/")})
