"""A loss on pairs in the batch: similarities of every sample with every other, over all ranks, and of every token with every other in late interaction."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "loss"


def incidents(s: Situation) -> Iterator[Incident]:
    """The matrix, its softmax and its gradient, in fp32."""
    job = s.job
    every = job.micro_batch * job.mesh.dp
    samples = {"activations/similarities of samples, softmax, gradient": 3 * 4 * every * every}
    yield s.beside("loss-pairwise/samples", f"in-batch pairs: {every:,} × {every:,}", "forward_peak", samples, source="3 * (micro_batch * dp)^2 * 4")
    own = job.micro_batch * job.seq_len
    tokens = {"activations/similarities of tokens, gradient": 2 * 4 * own * own}
    yield s.beside("loss-pairwise/tokens", f"pairs of tokens on a rank: {own:,} × {own:,}", "forward_peak", tokens, source="2 * (micro_batch * seq_len)^2 * 4")
