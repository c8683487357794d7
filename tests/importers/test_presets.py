"""Configurations that frameworks ship, by name."""

from __future__ import annotations

import shlex

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.importers.presets import preset


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("llama3_1/8B_full", {"model": "llama-3.1-8b", "micro_batch": 2, "optimizer": "adamw_torch_fused", "recompute": "full", "hardware.gpus": 4}),
        ("qwen3/0.6B_lora_single_device", {"model": "qwen3-0.6b", "lora.r": 32}),
        ("llama2/7B_qlora_single_device", {"quantization": "nf4-dq", "grad_accum": 8}),
    ],
)
def test_torchtunes_own_are_known_by_the_names_of_tune_ls(name: str, told: dict[str, object]) -> None:
    found = import_files([], command=shlex.split(f"tune run --nproc_per_node 4 recipe --config {name}"))
    values = {origin.key: origin.value for origin in found.origins}
    assert {key: values.get(key) for key in told} == told
    assert any(f"torchtune's {name}.yaml" in line for line in found.assumed)


def test_what_stands_in_the_command_wins() -> None:
    found = import_files([], command=shlex.split("tune run recipe --config llama3_1/8B_full batch_size=8"))
    assert found.layer.data["micro_batch"] == 8


def test_names_that_nobody_ships() -> None:
    assert preset("zero9") is None
    assert preset("../llama3_1/8B_full") is None
    with pytest.raises(InputError, match="not found"):
        import_files([], command=["tune", "run", "recipe", "--config", "llama9/8B_full"])
