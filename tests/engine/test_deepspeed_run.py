"""What a DeepSpeed configuration decides about a run."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.deepspeed_run import settle, uses_deepspeed
from memcalc.errors import InputError
from memcalc.specs.read import read_run


def config(**keys: Any) -> dict[str, Any]:
    return {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, **keys}


def test_a_stage_or_a_configuration_implies_the_engine() -> None:
    assert uses_deepspeed(read_run("llama-7b", zero=2))
    assert uses_deepspeed(read_run("llama-7b", deepspeed=config()))
    assert not uses_deepspeed(read_run("llama-7b"))
    assert not uses_deepspeed(read_run("llama-7b", zero=2, engine="fsdp2"))
    assert not uses_deepspeed(read_run("llama-7b", zero=1, code="megatron"))


def test_the_configuration_says_the_stage() -> None:
    found = settle(read_run("llama-7b", deepspeed=config()), hidden_size=4096).deepspeed
    assert found is not None
    assert found.zero.stage == 3


def test_another_stage_beside_the_configuration_is_an_error() -> None:
    with pytest.raises(InputError, match="zero is 2, but the DeepSpeed configuration says stage 3"):
        settle(read_run("llama-7b", zero=2, deepspeed=config()), hidden_size=4096)


def test_weights_are_cast_to_the_dtype_that_is_enabled_and_autocast_plays_no_part() -> None:
    run = settle(read_run("llama-7b", dtype="float32", autocast="bfloat16", deepspeed=config()), hidden_size=4096).run
    assert (run.dtype, run.autocast) == ("bfloat16", None)


def test_adapters_are_cast_like_all_weights() -> None:
    run = settle(read_run("llama-7b", lora_r=8, deepspeed=config()), hidden_size=4096).run
    assert run.lora is not None
    assert run.lora.dtype == "bfloat16"


def test_torch_autocast_keeps_fp32_weights() -> None:
    given = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}, "zero_optimization": {"stage": 2}}
    run = settle(read_run("llama-7b", deepspeed=given), hidden_size=4096).run
    assert (run.dtype, run.autocast) == ("float32", "bfloat16")


@pytest.mark.parametrize(("by", "bucket"), [("trainer", 4096**2), ("deepspeed", 5 * 10**8)])
def test_who_fills_in_auto_is_a_key_of_the_run(by: str, bucket: int) -> None:
    settled = settle(read_run("llama-7b", deepspeed=config(), deepspeed_auto=by), hidden_size=4096)
    assert settled.deepspeed is not None
    assert settled.deepspeed.zero.reduce_bucket_size == bucket
    assert "auto" in settled.assumptions[0]


def test_the_batch_of_the_configuration_is_taken_where_none_was_typed() -> None:
    given = config(train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=2)
    run = settle(read_run("llama-7b", deepspeed=given), hidden_size=4096).run
    assert (run.micro_batch, run.grad_accum) == (4, 2)
    run = settle(read_run("llama-7b", deepspeed=given, micro_batch=1), hidden_size=4096).run
    assert (run.micro_batch, run.grad_accum) == (1, 2)


def test_offload_of_the_run_counts_where_the_configuration_says_nothing_of_it() -> None:
    found = settle(read_run("llama-7b", deepspeed=config(), offload={"params": "cpu"}), hidden_size=4096).deepspeed
    assert found is not None
    assert found.zero.offload_param.device == "cpu"
    assert found.zero.offload_optimizer.device == "none"


def test_keys_that_are_not_understood_are_listed_as_ignored() -> None:
    assert settle(read_run("llama-7b", deepspeed=config(zenflow={})), hidden_size=4096).ignored == ("deepspeed: zenflow",)


def test_what_steps_is_the_runs_optimizer() -> None:
    found = settle(read_run("llama-7b", deepspeed=config(optimizer={"type": "Lion"}, tensor_parallel={"autotp_size": 2})), hidden_size=4096)
    assert found.ignored == (
        "deepspeed: optimizer.type lion; what steps is the run's own optimizer, adamw_torch",
        "deepspeed: tensor_parallel.autotp_size 2; the run's own tp is 1",
    )
    assert settle(read_run("llama-7b", deepspeed=config(optimizer={"type": "AdamW"})), hidden_size=4096).ignored == ()
