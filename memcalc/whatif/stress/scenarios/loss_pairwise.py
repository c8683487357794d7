"""A loss on pairs in the batch: similarities of every sample with every other, over all ranks, and of every token with every other in late interaction."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "loss"
SAMPLES, TOKENS = 3, 2
"""Tensors as large as the matrix at the peak: of a contrastive cross entropy, and of the largest similarity of each token (late interaction)."""


def incidents(s: Situation) -> Iterator[Incident]:
    """In fp32, counted in torch at the peak in backward: of samples their log-softmax and two gradients; of tokens, each with its nearest, two gradients."""
    job = s.job
    every = job.micro_batch * job.mesh.dp
    samples = {"activations/similarities of samples, log-softmax, gradients": SAMPLES * 4 * every * every}
    yield s.beside("loss-pairwise/samples", f"in-batch pairs: {every:,} × {every:,}", "forward_peak", samples, source="3 * (micro_batch * dp)^2 * 4")
    own = job.micro_batch * job.seq_len
    tokens = {"activations/gradients of similarities of tokens": TOKENS * 4 * own * own}
    yield s.beside("loss-pairwise/tokens", f"pairs of tokens on a rank: {own:,} × {own:,}", "forward_peak", tokens, source="2 * (micro_batch * seq_len)^2 * 4")
