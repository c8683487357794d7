"""LitGPT's YAML and flags."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files, import_text

LORA = """
checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B
precision: bf16-true
devices: 1
lora_r: 32
lora_query: true
lora_key: false
lora_mlp: true
train: {global_batch_size: 8, micro_batch_size: 2, max_seq_length: 512}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 0.0002}}
"""


def told(text: str) -> dict[str, Any]:
    """Keys and values of a file."""
    return {origin.key: origin.value for origin in import_text(text).origins}


def test_adapters_follow_their_switches_and_are_held_in_the_dtype_of_all() -> None:
    found = told(LORA)
    assert found["lora.target_modules"] == ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]
    assert (found["model"], found["lora.dtype"], found["grad_accum"], found["seq_len"]) == ("meta-llama/Meta-Llama-3-8B", "bfloat16", 4, 512)
    assert "recompute" not in found


def test_quantised_weights_are_stepped_by_a_paged_optimizer() -> None:
    found = told(LORA + "quantize: bnb.nf4-dq\n")
    assert (found["quantization"], found["optimizer"]) == ("nf4-dq", "paged_adamw_32bit")


def test_several_cards_shard_and_run_blocks_again() -> None:
    full = "checkpoint_dir: checkpoints/a/b\nprecision: bf16-mixed\ndevices: 4\ntrain: {global_batch_size: 70, micro_batch_size: 4}"
    found = told(full)
    assert (found["sharding.engine"], found["recompute"], found["grad_accum"]) == ("fsdp1", "full", 4)
    assert (found["dtype"], found["autocast"]) == ("float32", "bfloat16")
    assert told(LORA.replace("devices: 1", "devices: 2"))["sharding.engine"] == "fsdp2"


def test_a_command_names_the_recipe() -> None:
    words = "litgpt finetune_lora EleutherAI/pythia-160m --devices 2 --lora_projection true --train.micro_batch_size 4"
    found = {origin.key: origin.value for origin in import_files([], command=shlex.split(words)).origins}
    assert (found["model"], found["lora.target_modules"], found["hardware.gpus"]) == ("EleutherAI/pythia-160m", ["q_proj", "v_proj", "dense"], 2)
    assert found["code"] == "litgpt"
    for other in ("litgpt chat x", "litgpt finetune_adapter x"):
        with pytest.raises(InputError):
            import_files([], command=shlex.split(other))
