"""DeepSpeed-Chat's first two steps."""

from __future__ import annotations

import shlex
from typing import Any

from memcalc.importers import Imported, import_files

START = "deepspeed --num_gpus 8 main.py --data_split 2,4,4 --model_name_or_path opt-1.3b --zero_stage 2 --deepspeed "


def found(words: str) -> Imported:
    """What a command says."""
    return import_files([], command=shlex.split(START + words))


def told(words: str) -> dict[str, Any]:
    """Keys and values of a command."""
    return {origin.key: origin.value for origin in found(words).origins}


def test_the_configuration_is_made_by_the_script() -> None:
    run = told("--per_device_train_batch_size 8 --gradient_checkpointing --offload")
    assert (run["micro_batch"], run["recompute"], run["dtype"], run["seq_len"], run["hardware.gpus"]) == (8, "full", "float16", 512, 8)
    zero = run["sharding.deepspeed"]["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]["device"]) == (2, "cpu")
    assert "bf16" in told("--dtype bf16")["sharding.deepspeed"]


def test_adapters_are_on_where_they_have_a_rank() -> None:
    assert (told("--lora_dim 128")["lora.r"], told("--lora_dim 128")["lora.target_modules"]) == (128, "all-linear")
    assert "lora.r" not in told("--lora_dim 0")
    assert any("counted as frozen" in line for line in found("--lora_dim 128").unused)
    assert not any("counted as frozen" in line for line in found("--lora_dim 128 --only_optimize_lora").unused)


def test_the_second_step_trains_a_reward_model() -> None:
    assert told("--num_padding_at_beginning 1")["task"] == "reward"
