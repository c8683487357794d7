"""The engine's front: what stands beside the instants of a step."""

from __future__ import annotations

from typing import Any

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.specs.run import Run


def answer(**keys: Any) -> Estimate:
    """Of a small model."""
    return estimate(Run.model_validate({"model": "qwen2.5-0.5b", "seq_len": 128, **keys}))


def test_construction_is_an_instant_on_request() -> None:
    """And it comes first."""
    names = [i.name for i in answer(initialize=True, sharding={"zero": 2, "dp": 8}).most_loaded.instants]
    assert names == ["initialize", "start", "forward_peak", "forward_end", "backward_peak", "optimizer_step"]


def test_a_model_built_whole_under_stage_3_shows_by_itself() -> None:
    """Without zero.Init every rank begins with all weights."""
    sharded = answer(sharding={"zero": 3, "dp": 64})
    whole = answer(sharding={"zero": 3, "dp": 64, "zero3_init_flag": False})
    assert "initialize" not in [i.name for i in sharded.most_loaded.instants]
    assert whole.instant("initialize").allocated_bytes >= 2 * whole.model.total_params


def test_host_memory_is_that_of_a_node() -> None:
    """Eight ranks share a host unless said otherwise; ranks beyond a node's cards count on another node."""
    sharding = {"zero": 2, "dp": 16}
    node = answer(sharding=sharding, offload={"optimizer": "cpu"})
    pair = answer(sharding=sharding, offload={"optimizer": "cpu"}, hardware={"gpus_per_node": 2})
    rank = sum(term.bytes for term in node.most_loaded.host)
    assert rank > 0
    assert (node.host_bytes, pair.host_bytes) == (8 * rank, 2 * rank)
    assert answer(sharding=sharding).host_bytes == 0


def test_accumulation_says_what_it_keeps() -> None:
    """More micro-batches cost the gradients of the first, however many they are."""
    two, many = answer(grad_accum=2), answer(grad_accum=64)
    assert two.instant("forward_peak").allocated_bytes == many.instant("forward_peak").allocated_bytes
    assert "gradients of earlier micro-batches are there from forward on" in two.notes[-1]
    assert answer().notes == ()
