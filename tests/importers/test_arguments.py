"""A program's own arguments."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.importers import import_files
from memcalc.importers.arguments import by_keys, named_files
from memcalc.importers.argv import split


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--micro-batch-size", "1"], "megatron"),
        (["train.global_batch_size=8"], "megatron"),
        (["--cutoff_len", "512"], "llamafactory"),
        (["--step_scheduler.local_batch_size", "2"], "automodel"),
        (["--training.local_batch_size=2"], "torchtitan"),
        (["--data_split", "2,4,4"], "deepspeed_chat_sft"),
        (["--bf16"], "trainer"),
    ],
)
def test_a_format_is_known_by_its_keys(words: list[str], name: str) -> None:
    assert by_keys(split(words)) == name


def test_and_by_a_file_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("base_model: m\nmicro_batch_size: 1\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n", encoding="utf-8")
    assert by_keys(split(["train.py", "-c", "a.yaml", "--x", "1"])) == "axolotl"
    assert by_keys(split(["b.yaml"])) == "trainer"


def test_files_are_named_by_flags_and_by_themselves() -> None:
    words = split(["b.toml", "x", "--config", "a.yaml", "-c", "4096", "--data", "d.json"])
    assert list(named_files(words)) == [("a.yaml", "--config"), ("b.toml", "command")]


def told(command: str) -> dict[str, Any]:
    """Keys and values of a command."""
    return {origin.key: origin.value for origin in import_files([], command=shlex.split(command)).origins}


def test_servers_take_the_beginning_of_a_flag() -> None:
    found = told("vllm serve llama-7b --tensor-parallel 2 --max-model 4096 --gpu-memory-utilization .9")
    assert (found["sharding.tp"], found["seq_len"], found["serving.gpu_memory_utilization"]) == (2, 4096, 0.9)


def test_further_tokens_are_guessed_by_models_of_many_names() -> None:
    words = 'vllm serve glm-4.5v --speculative-config \'{"method": "ernie_mtp", "num_speculative_tokens": 1}\''
    assert told(words)["serving.speculative_method"] == "mtp"


@pytest.mark.parametrize(("name", "kept"), [("awq", "awq"), ("bitsandbytes", "nf4"), ("ptpc_fp8", "fp8"), ("compressed-tensors", None), ("modelopt_fp4", None)])
def test_quantization_is_of_the_checkpoint_or_made_as_it_is_loaded(name: str, kept: str | None) -> None:
    assert told(f"vllm serve llama-7b --quantization {name}").get("quantization") == kept
