"""NeMo Automodel's YAML and overrides."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.importers import Imported, import_files, import_text

RECIPE = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 64, local_batch_size: 8}
model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, pretrained_model_name_or_path: llama-3.2-1b, torch_dtype: float32}
distributed: {strategy: fsdp2, dp_size: none, tp_size: 1, cp_size: 1, sequence_parallel: false, activation_checkpointing: true}
loss_fn: {_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}
optimizer: {_target_: torch.optim.Adam, foreach: false}
dataset: {seq_length: 2048}
"""


def keys(found: Imported) -> dict[str, Any]:
    """Keys and values."""
    return {origin.key: origin.value for origin in found.origins}


def test_weights_are_held_as_loaded_and_compute_in_bf16() -> None:
    found = keys(import_text(RECIPE, flags={"hardware.gpus": 8}))
    assert (found["dtype"], found["autocast"], found["sharding.reduce_dtype"]) == ("float32", "bfloat16", "float32")
    assert (found["sharding.engine"], found["recompute"], found["optimizer_foreach"]) == ("fsdp2", "submodules", False)
    assert (found["micro_batch"], found["grad_accum"], found["seq_len"], found["holds_logits"]) == (8, 1, 2048, True)


def test_adapters_are_found_by_patterns() -> None:
    found = keys(import_text(RECIPE + "peft: {dim: 16, target_modules: ['*_proj', '*.out']}\n"))
    assert (found["lora.r"], found["lora.target_modules"], found["lora.dtype"]) == (16, r".*_proj|.*\.out", "float32")
    assert keys(import_text(RECIPE + "peft: {dim: 8, exclude_modules: ['*vision*']}\n"))["lora.exclude_modules"] == ".*vision.*"


def test_a_pipeline_is_given_parts_of_a_batch() -> None:
    text = RECIPE.replace("tp_size: 1", "pp_size: 4, pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 2}, tp_size: 1")
    found = keys(import_text(text, flags={"hardware.gpus": 8}))
    assert (found["micro_batch"], found["grad_accum"], found["sharding.vpp"], found["sharding.pp_schedule"]) == (2, 16, 2, "interleaved")


def test_its_own_launcher_and_a_script_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for start in ("automodel recipe.yaml --nproc-per-node 4", "torchrun --nproc-per-node 4 finetune.py --config recipe.yaml"):
        words = shlex.split(f"{start} --step_scheduler.local_batch_size 2 --distributed.tp_size 2")
        found = keys(import_files([], command=words))
        assert (found["hardware.gpus"], found["micro_batch"], found["sharding.tp"], found["grad_accum"]) == (4, 2, 2, 16)
