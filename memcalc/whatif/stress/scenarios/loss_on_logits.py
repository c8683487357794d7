"""A loss of one's own on the full logits: they are upcast, normalised, and their gradients come back, whatever the run's own loss spares.

Counted in torch on the loss alone, at its peak in backward, beside logits in 16 bits: cross entropy has three tensors of the size of the logits in fp32
(logits, log-softmax, its gradient), with the entropy of the output six, with a divergence from a teacher's seven.
"""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.formulas.loss import logits_bytes
from memcalc.units import ceil_div
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "loss"
TENSORS = {"entropy": 6, "distillation": 7}
THERE = 2
"""Those that stand at the forward peak already, where the run's own loss is a plain cross entropy."""


def incidents(s: Situation) -> Iterator[Incident]:
    """Beside the peak of forward, where all activations are alive."""
    job = s.job
    vocab = ceil_div(job.model.vocab_size, job.mesh.tp)
    one = logits_bytes(job.micro_batch, seq_len=job.seq_len, vocab=vocab, width=4)
    plain = job.run.loss == "cross_entropy"
    for name, count in TENSORS.items():
        extra = {f"activations/{name} of the logits, in fp32": (count - (THERE if plain else 0)) * one}
        if not plain:
            extra["activations/logits"] = one // 4 * s.width
        source = f"{count - (THERE if plain else 0)} * batch * seq_len * vocab_size * 4"
        yield s.beside(f"loss-on-logits/{name}", f"a loss of one's own on full logits: {name}", "forward_peak", extra, source=source)
