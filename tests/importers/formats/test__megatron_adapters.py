"""Adapters of Megatron-Bridge and NeMo 1, and Bridge's overrides."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files, import_text

BRIDGE = "torchrun --nproc_per_node 8 run_recipe.py --recipe llama3_8b_peft_config train.micro_batch_size=2 train.global_batch_size=64 dataset.seq_length=4096 "


def told(command: str) -> dict[str, Any]:
    """Keys and values of a command."""
    return {origin.key: origin.value for origin in import_files([], command=shlex.split(command)).origins}


def test_overrides_of_bridge_are_of_its_sections() -> None:
    found = told(BRIDGE + "model.tensor_model_parallel_size=2")
    assert (found["code"], found["sharding.tp"], found["micro_batch"], found["grad_accum"], found["seq_len"]) == ("megatron", 2, 2, 8, 4096)
    assert found["sharding.use_distributed_optimizer"] is True
    assert any("recipe" in line for line in import_files([], command=shlex.split(BRIDGE)).unused)


def test_layers_are_named_as_in_transformers() -> None:
    found = told(BRIDGE + "peft.dim=16 'peft.target_modules=[linear_qkv, linear_fc2]'")
    assert (found["lora.r"], found["lora.target_modules"]) == (16, ("q_proj", "k_proj", "v_proj", "down_proj"))
    assert told(BRIDGE + "--peft_scheme lora")["lora.target_modules"] == "all-linear"


def test_nemo_writes_ranks_of_schemes_that_are_not_the_one() -> None:
    text = "model: {tensor_model_parallel_size: 1, peft: {peft_scheme: %s, lora_tuning: {adapter_dim: 8, target_modules: [attention_qkv]}}}"
    found = {origin.key: origin.value for origin in import_text(text % "lora").origins}
    assert (found["lora.r"], found["lora.target_modules"]) == (8, ("q_proj", "k_proj", "v_proj"))
    assert "lora.r" not in {origin.key for origin in import_text(text % "null").origins}
    with pytest.raises(InputError, match="ptuning"):
        import_text(text % "ptuning")


def test_nemo_may_name_a_way_of_recomputing_that_it_does_not_use() -> None:
    text = "model: {tensor_model_parallel_size: 1, activations_checkpoint_granularity: %s, activations_checkpoint_method: uniform}"
    assert "recompute_method" not in {origin.key for origin in import_text(text % "selective").origins}
    assert "recompute_method" in {origin.key for origin in import_text(text % "full").origins}


@pytest.mark.parametrize(
    ("words", "rank"),
    [
        ("--recipe gpt_oss_20b_peft_config", 32),
        ("--recipe qwen3_8b_peft_config peft.dim=8", 8),
        ("--recipe qwen3_8b_lora", 32),
        ("--model qwen3_8b --mode dora", 32),
        ("--recipe qwen3_8b_sft_config", None),
        ("--recipe qwen3_8b_pretrain_config", None),
    ],
)
def test_bridges_recipes_say_adapters_by_their_names(words: str, rank: int | None) -> None:
    found = import_files([], command=["torchrun", "run_recipe.py", *words.split(), "train.micro_batch_size=1"]).layer.data
    assert found.get("lora", {}).get("r") == rank
