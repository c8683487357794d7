"""Figures outside the allocator."""

from __future__ import annotations

from memcalc.engine.estimate import estimate
from memcalc.formulas import overheads
from memcalc.specs.run import Run
from memcalc.units import MiB


def test_a_communicator_for_each_dimension_that_has_ranks() -> None:
    """Two for dp and tp, none for pp."""
    assert overheads.communicators({"dp": 2, "tp": 8, "pp": 1}) == {"dp": 342 * MiB, "tp": 392 * MiB}


def test_the_device_holds_more_than_the_allocator() -> None:
    """On the card: what is reserved, a context, workspaces of two threads, communicators; each by name."""
    answer = estimate(Run.model_validate({"model": "llama-7b", "seq_len": 128, "sharding": {"tp": 2}, "hardware": {"gpu": "h100-80g"}}))
    rank = answer.most_loaded
    assert [t.path for t in rank.device] == ["device/context", "device/library workspaces", "device/communicator of tp"]
    assert rank.device_bytes - rank.reserved_bytes == overheads.CUDA_CONTEXT_BYTES + 2 * 33 * MiB + 342 * MiB
    assert answer.verdict is not None
    assert answer.verdict.device_bytes == rank.device_bytes
