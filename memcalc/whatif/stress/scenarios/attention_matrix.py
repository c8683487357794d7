"""One layer's attention scores over a long sample: the square that eager attention makes and fused kernels do not."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "attention"


def scores_bytes(heads: int, length: int, width: int, *, batch: int = 1) -> int:
    """``batch * heads * length² * width``.

    Source: the shape of the scores of one layer.

    >>> scores_bytes(32, 10_000, 2) / 1e9
    6.4
    """
    return batch * heads * length * length * width


def incidents(s: Situation) -> Iterator[Incident]:
    """Scores in the run's dtype, and their softmax in fp32 beside them."""
    heads = s.job.model.num_heads // s.job.mesh.tp
    title = f"eager scores of one layer over {s.longest:,} tokens"
    if not heads:
        yield s.spared("attention-matrix", title, "the model has no attention heads")
        return
    extra = {"activations/scores of one layer": scores_bytes(heads, s.longest, s.width), "activations/softmax in fp32": scores_bytes(heads, s.longest, 4)}
    yield s.beside("attention-matrix", title, "forward_peak", extra, source="batch * heads * length^2 * (width + 4)")
