"""Arguments of llama-recipes and llama-cookbook."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files

START = "torchrun --nnodes 1 --nproc_per_node 4 finetuning.py --model_name llama-2-7b --batch_size_training 2 "


def told(words: str) -> dict[str, Any]:
    """Keys and values of a command."""
    return {origin.key: origin.value for origin in import_files([], command=shlex.split(START + words)).origins}


def test_fsdp_checkpoints_every_layer_and_holds_what_is_loaded() -> None:
    found = told("--enable_fsdp --context_length 2048 --fsdp_config.sharding_strategy SHARD_GRAD_OP --fsdp_config.fsdp_cpu_offload")
    assert (found["sharding.engine"], found["recompute"], found["dtype"], found["seq_len"]) == ("fsdp1", "full", "bfloat16", 2048)
    assert (found["sharding.fsdp_sharding_strategy"], found["offload.params"], found["micro_batch"]) == ("SHARD_GRAD_OP", "cpu", 2)
    assert "recompute" not in told("--enable_fsdp --fsdp_activation_checkpointing False")


def test_adapters_and_bits() -> None:
    found = told("--enable_fsdp True --use_peft --peft_method lora --quantization 4bit --lora_config.r 16")
    assert (found["lora.r"], found["lora.target_modules"], found["quantization"]) == (16, ("q_proj", "v_proj"), "nf4")
    assert told("--use_peft --quantization")["quantization"] == "int8"
    assert told("--enable_fsdp --pure_bf16 --optimizer anyprecision")["optimizer"] == "adamw_anyprecision"


def test_other_adapters_are_refused() -> None:
    with pytest.raises(InputError, match="llama_adapter"):
        told("--use_peft --peft_method llama_adapter")
