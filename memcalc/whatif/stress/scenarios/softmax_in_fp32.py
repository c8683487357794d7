"""Attention's softmax is computed in fp32 where scores are in 16 bits: one copy of a layer's scores, twice as wide."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.scenarios.attention_matrix import scores_bytes
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "attention"


def incidents(s: Situation) -> Iterator[Incident]:
    """At the run's own length."""
    job, title = s.job, "attention's softmax upcast to fp32"
    if job.run.attention != "eager":
        yield s.spared("softmax-in-fp32", title, f"{job.run.attention} keeps it inside the kernel; see attention-fallback")
        return
    heads = job.model.num_heads // job.mesh.tp
    extra = {"activations/softmax in fp32": scores_bytes(heads, job.seq_len, 4, batch=job.micro_batch)}
    yield s.beside(
        "softmax-in-fp32", title, "forward_peak", extra, note="transformers' eager attention has this copy already", source="batch * heads * length^2 * 4"
    )
