"""An evaluation between two steps, in the Trainer's loop: the loss alone, larger batches, logits kept for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memcalc.engine.evaluation import host_terms
from memcalc.engine.resolve import resolve
from memcalc.specs.read import read_run
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "evaluation"
DEFAULT_BATCH = 8
"""``per_device_eval_batch_size`` of transformers' TrainingArguments."""


def incidents(s: Situation) -> Iterator[Incident]:
    """States are there, gradients are not; logits of all samples stay on the card unless they are sent to the host in between."""
    yield s.instead("evaluation/loss", "evaluation, the loss alone", {"evaluation": {}}, instant="evaluation")
    batch = max(DEFAULT_BATCH, 2 * s.job.micro_batch)
    yield s.instead("evaluation/batch", f"evaluation with batches of {batch}", {"evaluation": {"micro_batch": batch}}, instant="evaluation")
    kept: dict[str, dict[str, Any]] = {"evaluation": {"prediction_loss_only": False, "samples": s.samples}}
    yield s.instead("evaluation/logits", f"evaluation, logits of {s.samples:,} samples kept", kept, instant="evaluation")
    sent = {"evaluation": {**kept["evaluation"], "accumulation_steps": 1}}
    found = s.instead("evaluation/host", "the same, sent to the host after every batch", sent, instant="evaluation")
    if found.survives is not None:
        each = sum(int(term.bytes) for term in host_terms(resolve(read_run(s.run, **sent))))
        found = found._replace(host_bytes=each * s.ranks_of_node, note="every rank keeps the logits of all")
    yield found
