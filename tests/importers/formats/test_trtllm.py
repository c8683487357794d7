"""Commands and YAML of TensorRT-LLM."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.importers import import_files
from memcalc.specs.read import merged


def run_of(command: str) -> dict[str, Any]:
    return merged([import_files([], command=shlex.split(command)).layer]).as_dict()


def test_flags() -> None:
    found = run_of(
        "trtllm-serve llama-3.1-8b --tp_size 2 --max_seq_len 8192 --max_batch_size 64 --max_num_tokens 4096 --kv_cache_free_gpu_memory_fraction 0.85"
    )
    assert (found["model"], found["code"], found["task"], found["sharding"]["tp"]) == ("llama-3.1-8b", "trtllm", "inference", 2)
    assert found["hardware"]["gpus"] == 2
    expected = {"max_model_len": 8192, "max_num_seqs": 64, "max_num_batched_tokens": 4096, "free_gpu_memory_fraction": 0.85}
    assert {key: found["serving"][key] for key in expected} == expected


def test_options_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names it, and wins."""
    monkeypatch.chdir(tmp_path)
    options = tmp_path / "options.yaml"
    options.write_text("kv_cache_config:\n  free_gpu_memory_fraction: 0.7\n  dtype: fp8\n  enable_block_reuse: false\nmax_num_tokens: 2048\n", encoding="utf-8")
    found = run_of("trtllm-serve llama-3.1-8b --max_num_tokens 4096 --extra_llm_api_options options.yaml")["serving"]
    assert (found["free_gpu_memory_fraction"], found["kv_cache_dtype"], found["max_num_batched_tokens"]) == (0.7, "fp8", 4096)
