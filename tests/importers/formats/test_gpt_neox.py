"""GPT-NeoX's YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files, import_text

PYTHIA = """{
  "pipe-parallel-size": 1, "model-parallel-size": 2,  # degrees
  "num-layers": 16, "hidden-size": 2048, "num-attention-heads": 8, "seq-length": 2048, "max-position-embeddings": 2048,
  "pos-emb": "rotary", "rotary-pct": 0.25, "no-weight-tying": true, "gpt-j-residual": true, "attention-config": [[["flash"], 16]],
  "optimizer": {"type": "Adam", "params": {"lr": 0.0002}},
  "zero_optimization": {"stage": 1, "reduce_bucket_size": 500000000, "load_from_fp32_weights": false},
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "checkpoint-activations": true,
  "fp16": {"fp16": true, "enabled": true, "loss_scale": 0}
}"""
LLAMA = """
model_parallel_size: 1
num_layers: 32
hidden_size: 4096
intermediate_size: 32768
num_attention_heads: 32
norm: rmsnorm
activation: swiglu
"""


def told(text: str) -> dict[str, Any]:
    """Keys and values of a file."""
    return {origin.key: origin.value for origin in import_text(text, name="neox.yml").origins}


def test_sizes_make_a_model_and_the_rest_is_deepspeeds() -> None:
    found = told(PYTHIA)
    config = json.loads(found["model"])
    assert (config["model_type"], config["intermediate_size"]) == ("gpt_neox", 8192)
    assert (config["use_parallel_residual"], config["tie_word_embeddings"]) == (True, False)
    assert (found["sharding.tp"], found["micro_batch"], found["grad_accum"], found["recompute"]) == (2, 4, 2, "full")
    assert (found["sharding.engine"], found["dtype"], found["attention"]) == ("deepspeed", "float16", "flash_attention_2")
    assert found["sharding.deepspeed"]["zero_optimization"] == {"stage": 1, "reduce_bucket_size": 500000000}


def test_gated_layers_are_llamas_and_as_wide_as_a_third_rounded_up() -> None:
    assert json.loads(told(LLAMA)["model"])["intermediate_size"] == 11008
    assert "model" not in told(LLAMA.replace("rmsnorm", "layernorm"))


def test_sizes_and_training_may_stand_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(LLAMA, encoding="utf-8")
    (tmp_path / "b.yml").write_text("zero_optimization: {stage: 1}\nbf16: {enabled: true}\ncheckpoint_activations: true\n", encoding="utf-8")
    found = {origin.key: origin.value for origin in import_files([str(tmp_path / "a.yml"), str(tmp_path / "b.yml")]).origins}
    assert (found["recompute"], found["dtype"], json.loads(found["model"])["model_type"]) == ("full", "bfloat16", "llama")


def test_what_deepspeed_would_not_take_is_refused() -> None:
    with pytest.raises(InputError, match="stage"):
        told(PYTHIA.replace('"stage": 1', '"stage": 7'))
