"""Activations are looked at: a histogram from an fp32 copy of one layer's, or attention matrices of all layers returned and kept."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.scenarios.attention_matrix import scores_bytes
from memcalc.whatif.stress.scenarios.logging_gradients import HISTOGRAM
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "logging"


def incidents(s: Situation) -> Iterator[Incident]:
    """Of every layer's output a few copies at a time; ``output_attentions`` keeps the probabilities of every layer until forward is through."""
    job = s.job
    elements = job.micro_batch * job.seq_len * job.model.hidden_size
    copies = {f"activations/{name}": num_bytes * elements for name, num_bytes in HISTOGRAM.items()}
    yield s.beside(
        "logging-activations/histogram", "histograms of a layer's output", "forward_peak", copies, source="batch * seq_len * hidden_size * (4 + 4 + 3)"
    )
    heads, name = job.model.num_heads // job.mesh.tp, "logging-activations/attention"
    layers = max(job.model.num_layers // job.mesh.pp, 1)
    title = f"attention matrices returned by all {layers} layers, which takes the eager kernel"
    if not heads:
        yield s.spared(name, title, "the model has no attention heads")
        return
    kept = layers * scores_bytes(heads, job.seq_len, s.width, batch=job.micro_batch) if job.run.recompute == "full" else 0
    note = "" if kept else "backward saves them anyway, as nothing is computed again"
    more = {"activations/attention matrices of all layers": kept} if kept else {}
    yield s.instead(name, title, {"attention": "eager"}, more=more, instant="forward_peak", note=note, source="layers * batch * heads * seq_len^2 * width")
