"""Megatron-DeepSpeed's flags."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.importers import Imported, import_files

SIZES = "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --max-position-embeddings 2048 --vocab-size 32000 --num-key-value-heads 4 --fp16 "
COMMAND = f"deepspeed --num_gpus 8 pretrain_gpt.py {SIZES}--tensor-model-parallel-size 2 --micro-batch-size 4 --checkpoint-activations --zero-stage=1 "


def found(words: str) -> Imported:
    """What a command says."""
    return import_files([], command=shlex.split(COMMAND + words))


def told(words: str) -> dict[str, Any]:
    """Keys and values of a command."""
    return {origin.key: origin.value for origin in found(words).origins}


def test_deepspeed_shards_in_the_place_of_megatron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e7}}', encoding="utf-8")
    run = told("--deepspeed --deepspeed_config ds.json")
    assert (run["sharding.engine"], run["code"], run["sharding.tp"], run["recompute"]) == ("deepspeed", "transformers", 2, "full")
    assert run["sharding.deepspeed"]["zero_optimization"]["reduce_bucket_size"] == 5e7
    assert (run["attention"], told("--deepspeed --use-flash-attn-v2")["attention"]) == ("eager", "flash_attention_2")
    assert "sharding.use_distributed_optimizer" not in run


def test_a_file_that_its_script_writes_first_need_not_be_there() -> None:
    assert told("--deepspeed --deepspeed_config none.json")["sharding.zero"] == 1
    assert any("no such file" in line for line in found("--deepspeed --deepspeed_config none.json").unused)


def test_without_its_switch_megatron_shards() -> None:
    assert told("")["sharding.engine"] == "megatron"
    assert "sharding.zero" not in told("")
