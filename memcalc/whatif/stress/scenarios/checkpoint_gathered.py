"""Weights that are cut are gathered all at once to be saved: ``GatheredParameters`` around ``save_pretrained``, a summon of the whole model."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.units import DTYPE_BYTES
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "checkpoint"


def incidents(s: Situation) -> Iterator[Incident]:
    """All weights in the dtype that they are held in, beside this rank's own shard of them."""
    title = "the whole model gathered at once on every card"
    if not s.shards_weights:
        yield s.spared("checkpoint-gathered", title, "weights are whole on every rank already")
        return
    width = DTYPE_BYTES[s.job.run.dtype]
    tp = s.job.mesh.tp * s.job.mesh.pp
    num = s.job.model.num_params // tp
    yield s.beside("checkpoint-gathered", title, "start", {"weights/whole model, gathered": num * width}, source="num_params * width")
