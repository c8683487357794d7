"""FSDP2: what its knobs do to each instant."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError
from tests.engine import toy
from tests.engine.strategies.walks import INSTANTS, arrays_agree, at_initialize, job, paths, states, totals, walked

MIXED = {"dtype": "float32", "autocast": "bfloat16"}


@pytest.mark.parametrize("dp", [2, 4, 8])
def test_states_are_divided_where_rows_divide(dp: int) -> None:
    """Each rank holds its part of weights and moments, and nothing more."""
    assert states(engine="fsdp2", dp=dp) * dp == states(engine="ddp", dp=dp)


@pytest.mark.parametrize("dp", [3, 5, 7, 600])
def test_states_are_padded_by_less_than_a_row_of_each_parameter(dp: int) -> None:
    """Weights and two moments of 2 bytes; a row is at most as wide as the network."""
    rows = sum(s.copies for s in walked(engine="ddp").plan.shards())
    whole = states(engine="ddp")
    assert whole <= states(engine="fsdp2", dp=dp) * dp < whole + dp * rows * 688 * 6


def test_over_one_rank_states_are_those_of_the_unsharded_run() -> None:
    """There is nothing to divide, though FSDP still copies weights in order to compute with them."""
    alone = totals(engine="fsdp2", dp=1)
    assert alone["start"] == totals(engine="ddp", dp=1)["start"]
    assert alone["forward_peak"] > totals(engine="ddp", dp=1)["forward_peak"]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("keys", [{}, MIXED, {"recompute": "full"}, {"grad_accum": 2}])
def test_without_resharding_nothing_is_less_after_forward(keys: dict[str, Any], tied: bool) -> None:
    """All weights stay gathered, so the end of forward holds at least them more."""
    model = toy.llama(tied=tied)
    kept, freed = (totals(model, engine="fsdp2", sharding={"reshard_after_forward": r}, **keys) for r in (False, True))
    assert all(kept[name] >= freed[name] for name in ("start", "forward_peak", "forward_end"))
    assert kept["forward_end"] - freed["forward_end"] == model.num_params * 2
    assert max(kept.values()) > max(freed.values())


def test_few_layers_without_resharding_may_peak_lower_in_backward() -> None:
    """What is still gathered needs no second buffer to be gathered through."""
    model = toy.llama(layers=1)
    assert totals(model, engine="fsdp2", sharding={"reshard_after_forward": False})["backward_peak"] < totals(model, engine="fsdp2")["backward_peak"]


def test_wider_reductions_need_no_less() -> None:
    """Gradients are copied into the reduce dtype."""
    wide, narrow = (totals(engine="fsdp2", sharding={"reduce_dtype": dtype}, seq_len=8, **MIXED) for dtype in ("float32", "bfloat16"))
    assert all(wide[name] >= narrow[name] for name in INSTANTS)
    assert wide["backward_peak"] > narrow["backward_peak"]


def test_replicas_of_a_group_are_like_the_group() -> None:
    """HSDP divides by the ranks of one replica, and its all-reduce works in place."""
    assert totals(engine="fsdp2", dp=8, sharding={"dp_replicate": 2}) == totals(engine="fsdp2", dp=4)


def test_replicas_keep_what_they_reduced_in_another_dtype() -> None:
    """Each group's all-reduced buffer lives until backward is through."""
    keys = {"sharding": {"reduce_dtype": "bfloat16"}, "seq_len": 8, **MIXED}
    alone = totals(engine="fsdp2", dp=4, **keys)
    keys["sharding"] = {"reduce_dtype": "bfloat16", "dp_replicate": 2}
    assert totals(engine="fsdp2", dp=8, **keys)["backward_peak"] > alone["backward_peak"]


def test_accumulation_adds_the_shards_of_the_gradients() -> None:
    """Earlier micro-batches have left them; between steps they are gone."""
    model = toy.llama()
    once, twice = totals(model, engine="fsdp2", dp=4), totals(model, engine="fsdp2", dp=4, grad_accum=2)
    assert twice["forward_end"] - once["forward_end"] == model.num_params * 2 // 4
    assert (twice["start"], twice["optimizer_step"]) == (once["start"], once["optimizer_step"])


def test_without_a_reduction_in_each_micro_batch_gradients_wait_whole() -> None:
    """In the reduce dtype, on every rank."""
    model = toy.llama()
    once = totals(model, engine="fsdp2", dp=4, **MIXED)
    twice = totals(model, engine="fsdp2", dp=4, grad_accum=2, sharding={"sync_each_batch": False, "reduce_dtype": "float32"}, **MIXED)
    assert twice["forward_end"] - once["forward_end"] == model.num_params * 4
    assert twice["optimizer_step"] == once["optimizer_step"]


def test_ends_of_their_own_free_the_table_and_keep_the_head() -> None:
    """After forward only norm and head are gathered; they run back at once."""
    gathered = [path for path in paths(engine="fsdp2", sharding={"fsdp_wrap_ends": True})["forward_end"].by_path if path.startswith("weights/gathered")]
    assert gathered == ["weights/gathered norm + lm_head"]


def test_frozen_parameters_have_no_gradients_and_no_states() -> None:
    """Adapters alone are reduced and stepped; everything is gathered."""
    from memcalc.models.lora import adapt
    from memcalc.specs.run import LoraSpec

    lora = {"r": 4, "dtype": "bfloat16"}
    found = paths(adapt(toy.llama(), LoraSpec.model_validate(lora)), engine="fsdp2", dp=4, lora=lora)
    num_adapter = sum(n for path, n in found["optimizer_step"].by_path.items() if path.startswith("gradients/"))
    assert 0 < num_adapter < 0.1 * sum(n for path, n in found["start"].by_path.items() if path.startswith("weights/"))
    assert found["start"].by_path["optimizer/moments"] == 2 * num_adapter


def test_offloaded_shards_are_on_the_host() -> None:
    """Between steps the card holds nothing of them; the host holds weights, gradients and moments."""
    keys: dict[str, Any] = {"engine": "fsdp2", "dp": 4, "offload": {"params": "cpu"}, **MIXED}
    assert totals(**keys)["start"] == 0
    host = {term.path: term.bytes for term in walked(**keys).strategy.host()}
    whole = toy.llama().num_params
    assert host["host/pageable/moments"] == whole * 8 // 4
    assert whole * 4 // 4 <= host["host/pinned/weights"] == host["host/pinned/gradients"] <= 2 * whole * 4 // 4


def test_nothing_is_on_the_host_unless_offloaded() -> None:
    """Everything is on the card."""
    assert walked(engine="fsdp2").strategy.host() == ()


@pytest.mark.parametrize("sharding", [{}, {"reshard_after_forward": False}, {"fsdp_wrap_ends": True}, {"sync_each_batch": False}])
@pytest.mark.parametrize("keys", [{}, {**MIXED, "grad_accum": 2}, {"offload": {"params": "cpu"}}])
def test_arrays_of_sizes_and_degrees_give_what_each_gives_alone(sharding: dict[str, Any], keys: dict[str, Any]) -> None:
    """Bit for bit."""
    asked = job(toy.llama(layers=7, tied=True), engine="fsdp2", sharding=sharding, **keys)
    assert arrays_agree(asked, batch=[1, 3, 5, 2], seq=[64, 100, 33, 257], dp=[1, 2, 6, 8])


def test_construction_holds_the_whole_model_and_the_first_shards() -> None:
    """Each group's whole parameters go when it is sharded."""
    model = toy.llama()
    layer, whole = model.blocks[1].module.num_params, model.num_params
    assert at_initialize(model, engine="fsdp2", dp=4) == whole * 2 + layer * 2 // 4


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"sharding": {"zero": 2}}, "reshard_after_forward: false"),
        ({"sharding": {"dp_replicate": 3}}, "1, 2, 4"),
        ({"offload": {"params": "nvme"}}, "offload.params: cpu"),
        ({"offload": {"optimizer": "cpu"}}, "offload.params: cpu"),
    ],
)
def test_what_cannot_be_names_what_can(keys: dict[str, Any], says: str) -> None:
    """A ZeRO stage, a degree that does not divide, offloading in part."""
    with pytest.raises(InputError, match=says):
        totals(engine="fsdp2", dp=4, **keys)
