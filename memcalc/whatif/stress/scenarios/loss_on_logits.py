"""A loss of one's own on the full logits: they are upcast, normalised, and their gradient comes back, whatever the run's own loss spares."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.formulas.loss import logits_bytes
from memcalc.units import ceil_div
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "loss"


def incidents(s: Situation) -> Iterator[Incident]:
    """Probabilities (distillation, KL, entropy) beside what the head gives; each a tensor of the size of the logits in fp32."""
    job = s.job
    vocab = ceil_div(job.model.vocab_size, job.mesh.tp)
    one = logits_bytes(job.micro_batch, seq_len=job.seq_len, vocab=vocab, width=4)
    title = "a custom loss on full logits"
    if job.run.loss != "cross_entropy":
        yield s.instead("loss-on-logits/full", f"{title}: logits whole, not in pieces", {"loss": "cross_entropy"})
    extra = {"activations/probabilities in fp32": one, "activations/gradient of probabilities": one}
    yield s.beside(
        "loss-on-logits/probabilities", f"{title}: probabilities and their gradient", "backward_peak", extra, source="2 * batch * seq_len * vocab_size * 4"
    )
