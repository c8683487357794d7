"""Keys that change nothing are said to."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.effect import KNOBS, OF_CODE, SLEEPING, ignored_knobs
from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.specs.run import Run, ShardingSpec


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"recompute": "selective"}, "recompute: transformers' own checkpointing takes whole layers"),
        ({"sharding": {"sp": True, "tp": 2}}, "sharding.sp: transformers' modules have no sequence parallelism"),
        ({"code": "megatron", "sharding": {"sp": True}}, "sharding.sp: sequence parallelism splits over the tensor-parallel ranks"),
        ({"offload": {"optimizer": "cpu"}}, "offload.optimizer: engine ddp keeps its optimizer on the card"),
        ({"recompute_method": "uniform"}, "recompute_method: it says how to recompute whole layers, and recompute is none"),
        ({"recompute": "full", "recompute_num_layers": 2}, "recompute_num_layers: the layers of what?"),
        ({"recompute": "full", "recompute_modules": "mlp"}, "recompute_modules: it says which modules run again, and recompute is full"),
        ({"code": "megatron", "autocast": "float16"}, "autocast: Megatron's modules compute in the dtype of their weights"),
        ({"hidden_dropout": 0.1}, "hidden_dropout: code transformers has no such knob"),
        ({"code": "megatron", "sharding": {"exp_avg_dtype": "bf16"}}, "sharding.exp_avg_dtype: without use_precision_aware_optimizer"),
        ({"sharding": {"moe_pad_expert_input_to_capacity": True}}, "sharding.moe_pad_expert_input_to_capacity: experts have no capacity to pad to"),
        ({"sharding": {"capacity_factor": 1.5}}, "sharding.capacity_factor: llama-7b has no experts"),
    ],
)
def test_what_cannot_be_given_is_refused(keys: dict[str, Any], message: str) -> None:
    """Rather than an answer in which the key was left out."""
    with pytest.raises(InputError) as raised:
        estimate(Run.model_validate({"model": "llama-7b", "seq_len": 128, **keys}))
    assert str(raised.value).startswith(message)


def test_another_engines_knob_is_listed_as_ignored() -> None:
    """Given under ddp, fsdp2's knob is read and cannot be used."""
    answer = estimate(Run.model_validate({"model": "llama-7b", "seq_len": 128, "sharding": {"reshard_after_forward": False}}))
    assert answer.ignored == ("sharding.reshard_after_forward: engine ddp has no such knob",)


@pytest.mark.parametrize(
    ("code", "sharding", "why"),
    [
        ("transformers", {"moe_router_dtype": "fp32"}, "moe_router_dtype: code transformers has no such knob"),
        ("megatron", {"cp_comm_type": "a2a"}, "cp_comm_type: cp is 1"),
        ("megatron", {"pp_schedule": "gpipe"}, "pp_schedule: pp is 1"),
        ("megatron", {"expert_imbalance": 2.0}, "expert_imbalance: ep is 1"),
    ],
)
def test_keys_that_wait_for_other_modules_or_a_degree_are_listed(code: str, sharding: dict[str, Any], why: str) -> None:
    """They are there in launch files whatever the degrees are."""
    answer = estimate(Run.model_validate({"model": "llama-7b", "seq_len": 128, "code": code, "sharding": sharding}))
    assert answer.ignored == (f"sharding.{why}",)


def test_every_knob_is_a_key_of_the_run_file() -> None:
    """And engines' own keys that nobody was told about are found."""
    assert {*KNOBS, *OF_CODE, *SLEEPING} <= set(ShardingSpec.model_fields)
    assert ignored_knobs(Run.model_validate({"model": "m"}), "ddp") == ()


@pytest.mark.parametrize(("engine", "zero", "instead"), [("fsdp2", 0, "ddp"), ("fsdp2", 1, "deepspeed"), ("fsdp1", 2, "deepspeed")])
def test_a_stage_that_an_engine_does_not_have_names_the_engine_that_has_it(engine: str, zero: int, instead: str) -> None:
    with pytest.raises(InputError, match=f"engine {engine} shards weights, as stage 3 does, so zero {zero} cannot be; .* use engine {instead}"):
        estimate(read_run("llama-7b", engine=engine, zero=zero, gpus=8))
