"""FSDP1: what its knobs do to each instant."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError
from tests.engine import toy
from tests.engine.strategies.walks import arrays_agree, at_initialize, job, paths, states, totals, walked

MIXED = {"dtype": "float32", "autocast": "bfloat16"}


def under(strategy: str, **keys: Any) -> dict[str, Any]:
    """The keys of a sharding strategy."""
    return {"fsdp_sharding_strategy": strategy, **keys}


@pytest.mark.parametrize("dp", [2, 4, 8])
def test_states_are_divided(dp: int) -> None:
    """Each rank holds its part of weights and moments; the toy's sizes need no padding."""
    assert states(engine="fsdp1", dp=dp) * dp == states(engine="ddp", dp=dp)


def test_the_last_gradients_are_still_there_between_steps() -> None:
    """The flat parameters hold them until the next forward."""
    model = toy.llama()
    start = paths(model, engine="fsdp1", dp=4)["start"].by_path
    assert sum(n for path, n in start.items() if path.startswith("gradients/")) == model.num_params * 2 // 4
    assert not any(path.startswith("gradients/") for path in paths(model, engine="fsdp1", dp=4)["forward_end"].by_path)


@pytest.mark.parametrize("keys", [{}, MIXED, {"recompute": "full"}])
def test_strategies_that_shard_less_hold_no_less(keys: dict[str, Any]) -> None:
    """Weights kept after forward; then nothing sharded at all."""
    full, grad_op, none = (totals(engine="fsdp1", sharding=under(s), **keys) for s in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"))
    assert full["start"] == grad_op["start"] < none["start"]
    assert full["forward_end"] < grad_op["forward_end"]
    assert max(full.values()) < max(grad_op.values()) < max(none.values())


def test_over_one_rank_nothing_is_sharded() -> None:
    """torch falls back to NO_SHARD; between steps that is the unsharded run with its gradients."""
    model = toy.llama()
    assert totals(model, engine="fsdp1", dp=1) == totals(model, engine="fsdp1", dp=4, sharding=under("NO_SHARD"))
    assert totals(model, engine="fsdp1", dp=1)["start"] == totals(model, engine="ddp", dp=1)["start"] + model.num_params * 2


def test_hybrid_sharding_divides_by_the_ranks_of_a_replica() -> None:
    """Two replicas of four ranks are like four ranks."""
    assert totals(engine="fsdp1", dp=8, sharding=under("HYBRID_SHARD", dp_replicate=2)) == totals(engine="fsdp1", dp=4)
    assert totals(engine="fsdp1", dp=8, sharding=under("_HYBRID_SHARD_ZERO2", dp_replicate=2)) == totals(engine="fsdp1", dp=4, sharding=under("SHARD_GRAD_OP"))


def test_without_a_wrap_policy_the_whole_model_is_gathered_and_its_gradients_twice() -> None:
    """One unit: weights, the gradients, and the flat copy of them, all at once."""
    model = toy.llama()
    bare = totals(model, engine="fsdp1", seq_len=8, sharding={"fsdp_auto_wrap_policy": "NO_WRAP"})
    assert bare["backward_peak"] > 3 * model.num_params * 2
    assert bare["backward_peak"] > totals(model, engine="fsdp1", seq_len=8)["backward_peak"]


def test_prefetching_holds_one_more_unit() -> None:
    """Gathered before the unit at work runs back, or when it is through, or not ahead."""
    pre, post, none = (
        totals(engine="fsdp1", seq_len=8, sharding={"fsdp_backward_prefetch": p})["backward_peak"] for p in ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
    )
    assert none <= post <= pre
    assert none < pre


def test_forward_prefetching_holds_one_more_layer_in_forward() -> None:
    """While the last but one runs, so that the difference is a layer's weights less what the last layer saves."""
    model = toy.llama(intermediate=2048, vocab=64)
    ahead, plain = (totals(model, engine="fsdp1", dp=64, seq_len=8, sharding={"fsdp_forward_prefetch": f}) for f in (True, False))
    weights = model.blocks[1].module.num_params * 2
    assert 0.9 * weights < ahead["forward_peak"] - plain["forward_peak"] < weights
    assert all(ahead[name] == plain[name] for name in ("start", "forward_end", "optimizer_step"))


def test_forward_prefetching_keeps_a_layer_longer_in_backward() -> None:
    """Its weights and gradients wait until the layer before has run back, which was recorded later."""
    model = toy.llama(intermediate=2048, vocab=64)
    ahead, plain = (totals(model, engine="fsdp1", dp=64, seq_len=8, sharding={"fsdp_forward_prefetch": f}) for f in (True, False))
    assert ahead["backward_peak"] - plain["backward_peak"] > 0.9 * model.blocks[1].module.num_params * 2


def test_accumulation_adds_the_shards_of_the_gradients() -> None:
    """Earlier micro-batches have left them, so that they are there in forward too."""
    model = toy.llama()
    once, twice = totals(model, engine="fsdp1", dp=4), totals(model, engine="fsdp1", dp=4, grad_accum=2)
    assert twice["forward_end"] - once["forward_end"] == model.num_params * 2 // 4
    assert twice["start"] == once["start"]


def test_without_a_reduction_in_each_micro_batch_gradients_wait_whole() -> None:
    """In the dtype that backward makes them in."""
    model = toy.llama()
    once = totals(model, engine="fsdp1", dp=4, **MIXED)
    twice = totals(model, engine="fsdp1", dp=4, grad_accum=2, sharding={"sync_each_batch": False}, **MIXED)
    assert twice["forward_end"] - once["forward_end"] == model.num_params * 2
    assert twice["start"] == once["start"]


def test_offloaded_shards_are_on_the_host() -> None:
    """Between steps the card holds nothing of them; each unit's shard is pinned on the host."""
    keys: dict[str, Any] = {"engine": "fsdp1", "dp": 4, "offload": {"params": "cpu"}, **MIXED}
    found = paths(**keys)
    assert found["start"].total == 0
    assert not any(path.startswith(("gradients/", "weights/")) for path in found["optimizer_step"].by_path)
    host = {term.path: term.bytes for term in walked(**keys).strategy.host()}
    assert host["host/pageable/moments"] == toy.llama().num_params * 8 // 4


@pytest.mark.parametrize("sharding", [{}, under("SHARD_GRAD_OP"), {"fsdp_auto_wrap_policy": "NO_WRAP"}, {"sync_each_batch": False}])
@pytest.mark.parametrize("keys", [{}, {**MIXED, "grad_accum": 2}, {"offload": {"params": "cpu"}}])
def test_arrays_of_sizes_and_degrees_give_what_each_gives_alone(sharding: dict[str, Any], keys: dict[str, Any]) -> None:
    """Bit for bit."""
    asked = job(toy.llama(layers=7, tied=True), engine="fsdp1", sharding=sharding, **keys)
    assert arrays_agree(asked, batch=[1, 3, 5, 2], seq=[64, 100, 33, 257], dp=[2, 3, 6, 8])


@pytest.mark.accuracy
@pytest.mark.parametrize(
    ("keys", "dp", "sharding", "traced"),
    [
        ({}, 4, {}, 62963456),
        ({}, 8, {}, 62160384),
        (MIXED, 4, {}, 125926656),
        ({}, 4, {"fsdp_auto_wrap_policy": "NO_WRAP"}, 123598336),
    ],
)
def test_construction_peaks_where_traced(keys: dict[str, Any], dp: int, sharding: dict[str, Any], traced: int) -> None:
    """A model whole on the card, beside the flat copy and the shard of the first unit."""
    model = toy.llama(layers=6, hidden=512, heads=8, kv_heads=8, intermediate=1408, vocab=8000)
    assert at_initialize(model, engine="fsdp1", dp=dp, sharding=sharding, **keys) == pytest.approx(traced, rel=1e-5)


def test_construction_without_sharding_flattens_only() -> None:
    """The flat parameter is the weight from there on."""
    model = toy.llama()
    layer, whole = model.blocks[1].module.num_params, model.num_params
    assert at_initialize(model, engine="fsdp1", sharding=under("NO_SHARD")) == (whole + layer) * 2


@pytest.mark.parametrize(
    ("sharding", "says"),
    [
        ({"dp_replicate": 2}, "HYBRID_SHARD"),
        ({"dp_replicate": 3, "fsdp_sharding_strategy": "HYBRID_SHARD"}, "1, 2, 4"),
        ({"zero": 2}, "SHARD_GRAD_OP"),
    ],
)
def test_what_cannot_be_names_what_can(sharding: dict[str, Any], says: str) -> None:
    """Replicas without hybrid sharding, a degree that does not divide, a ZeRO stage."""
    with pytest.raises(InputError, match=says):
        totals(engine="fsdp1", dp=4, sharding=sharding)
