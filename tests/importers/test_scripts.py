"""Scripts around the Trainer that are not TRL's."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.importers import import_files

START = "torchrun --nproc_per_node 2 train.py --model_name_or_path llama-7b --bf16 True --per_device_train_batch_size 2 "


def told(words: str) -> dict[str, Any]:
    """Keys and values of a command."""
    return {origin.key: origin.value for origin in import_files([], command=shlex.split(START + words)).origins}


def test_their_lengths_bring_no_defaults_of_trl() -> None:
    found = told("--model_max_length 2048")
    assert found["seq_len"] == 2048
    assert not {"recompute", "loss", "lora.r"} & set(found)


@pytest.mark.parametrize(
    ("words", "rank", "quantization"),
    [
        ("--use_lora", 8, None),
        ("--lora_enable True --lora_r 128", 128, None),
        ("--use_lora --q_lora --lora_rank 64", 64, "nf4"),
        ("--bits 4 --double_quant --lora_r 64", 64, "nf4-dq"),
        ("--use_llm_lora 16", 16, None),
        ("--train_mode qlora --lora_rank 64", 64, "nf4"),
    ],
)
def test_adapters_by_their_own_names(words: str, rank: int, quantization: str | None) -> None:
    found = told(f"--model_max_length 512 {words}")
    assert (found["lora.r"], found.get("quantization"), found["lora.target_modules"]) == (rank, quantization, "all-linear")


def test_adapters_that_are_off_are_off() -> None:
    assert "lora.r" not in told("--use_lora False --lora_rank 64")


def test_open_instructs_preferences_are_dpo() -> None:
    assert told("--max_seq_length 2048 --dpo_loss_type dpo_norm --dpo_beta 5")["task"] == "dpo"
    assert told("--max_seq_length 2048 --loss_type dpo_norm")["task"] == "dpo"


def test_what_they_freeze_is_listed() -> None:
    found = import_files([], command=shlex.split(f"{START} --freeze_llm True --tune_mm_vision False --use_flash_attn True"))
    assert [line.partition(":")[0] for line in found.unused] == ["--freeze_llm", "--tune_mm_vision"]
    assert found.layer.data["attention"] == "flash_attention_2"


LOADED = 'model = AutoModelForCausalLM.from_pretrained("llama-7b", device_map={})\nTrainer(model=model, args=TrainingArguments(output_dir="o", bf16=True))\n'


@pytest.mark.parametrize(
    ("launch", "placed", "listed"),
    [
        ('python "auto"', "auto", False),
        ('python "balanced_low_0"', "balanced_low_0", False),
        ('torchrun "auto"', None, True),
        ('python "cuda:0"', None, False),
        ("python PLACES", None, True),
    ],
)
def test_one_process_spreads_a_model_as_its_script_says(launch: str, placed: str | None, listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, device_map = launch.split()
    (tmp_path / "train.py").write_text(LOADED.replace("{}", device_map, 1))
    monkeypatch.chdir(tmp_path)
    found = import_files([], command=[launcher, *(["--nproc_per_node", "2"] if launcher == "torchrun" else []), "train.py"])
    assert {origin.key: origin.value for origin in found.origins}.get("loading.device_map") == placed
    assert any("device_map" in line for line in found.unused) == listed
