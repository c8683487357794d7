"""Gradients are looked at: their norm in fp64, their histogram from an fp32 copy, tensor by tensor.

Source: wandb's ``TorchHistory.log_tensor_stats``, which looks for what is not finite first (``torch.isfinite``: absolute values and three masks).
"""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.units import ceil_div
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "logging"
HISTOGRAM = {"copy in fp32": 4, "absolute values": 4, "masks of what is finite": 3}
"""Bytes of an element while a histogram is made."""


def incidents(s: Situation) -> Iterator[Incident]:
    """A copy of the largest tensor; of the whole partition, where gradients are one flat vector."""
    flat = s.job.engine == "deepspeed" and s.job.zero > 0 and not s.steps_on_host
    largest = ceil_div(s.num_trainable, s.shares) if flat else ceil_div(s.largest_gradient, s.shares if s.shards_weights else 1)
    of = "of the flat vector" if flat else "of the largest gradient"
    yield s.beside("logging-gradients/norm", f"gradient norms in fp64, {of}", "optimizer_step", {"gradients/copy in fp64": 8 * largest}, source="elements * 8")
    extra = {f"gradients/{name}": num_bytes * largest for name, num_bytes in HISTOGRAM.items()}
    yield s.beside("logging-gradients/histogram", f"gradient histograms, {of}", "optimizer_step", extra, source="elements * (4 + 4 + 3)")
