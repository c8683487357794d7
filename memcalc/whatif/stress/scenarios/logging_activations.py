"""Activations are looked at: a histogram from an fp32 copy of one layer's, or attention matrices of all layers returned and kept."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.scenarios.attention_matrix import scores_bytes
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "logging"


def incidents(s: Situation) -> Iterator[Incident]:
    """Of every layer's output one copy at a time; ``output_attentions`` keeps the probabilities of every layer until forward is through."""
    job = s.job
    width = job.model.hidden_size
    one = {"activations/copy in fp32": 4 * job.micro_batch * job.seq_len * width}
    yield s.beside("logging-activations/histogram", "histograms of a layer's output", "forward_peak", one, source="batch * seq_len * hidden_size * 4")
    heads = job.model.num_heads // job.mesh.tp
    if not heads:
        yield s.spared("logging-activations/attention", "attention matrices returned by every layer", "the model has no attention heads")
        return
    layers = max(job.model.num_layers // job.mesh.pp, 1)
    kept = {"activations/attention matrices of all layers": layers * scores_bytes(heads, job.seq_len, s.width, batch=job.micro_batch)}
    title = f"attention matrices returned by all {layers} layers"
    yield s.beside("logging-activations/attention", title, "forward_peak", kept, source="layers * batch * heads * seq_len^2 * width")
