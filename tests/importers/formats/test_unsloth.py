"""Unsloth's YAML and the flags of its commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files, import_text

VISION = """
model: unsloth/Qwen2.5-VL-7B-Instruct
training: {training_type: lora, max_seq_length: 2048, load_in_4bit: true, batch_size: 1, gradient_checkpointing: unsloth}
lora: {lora_r: 64, lora_alpha: 16, target_modules: "", vision_all_linear: true}
"""


def told(command: str) -> dict[str, Any]:
    """Keys and values of a command."""
    return {origin.key: origin.value for origin in import_files([], command=shlex.split(command)).origins}


def test_targets_that_are_empty_are_not_there() -> None:
    found = {origin.key: origin.value for origin in import_text(VISION).origins}
    assert (found["lora.r"], found["lora.target_modules"], found["offload.activations"]) == (64, "all-linear", "cpu")


def test_its_script_takes_keys_without_their_sections() -> None:
    found = told(
        "python unsloth-cli.py --model_name unsloth/llama-3-8b --max_seq_length 8192 --dtype None --load_in_4bit --r 64 --gradient_accumulation_steps 8"
    )
    assert (found["model"], found["seq_len"], found["quantization"], found["lora.r"], found["grad_accum"]) == ("unsloth/llama-3-8b", 8192, "nf4", 64, 8)
    assert (found["micro_batch"], found["hardware.gpus"]) == (2, 1)


def test_its_command_takes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vision.yaml").write_text(VISION, encoding="utf-8")
    assert told("unsloth train --config vision.yaml --batch-size 3")["micro_batch"] == 3
    with pytest.raises(InputError, match="unsloth train"):
        told("unsloth chat")


def test_adapters_run_with_their_layers_as_one_function() -> None:
    kernels = [
        {origin.key: origin.value for origin in import_text(text).origins}.get("lora.kernels") for text in (VISION, VISION.replace(": lora,", ": full,"))
    ]
    assert kernels == [("mlp", "qkv", "o"), None]
