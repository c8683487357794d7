"""Configurations that frameworks ship, by name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.importers.presets import preset
from memcalc.specs.deepspeed_file import read_deepspeed


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


@pytest.mark.parametrize(
    ("path", "zero"),
    [
        ("deepspeed_configs/zero2.json", {"stage": 2, "offload_optimizer": {"device": "cpu"}}),
        ("deepspeed_configs/zero1_torch_compile.json", {"stage": 1}),
        ("axolotl/deepspeed_configs/zero3_bf16.json", {"stage": 3, "max_live_parameters": 0, "stage3_max_live_parameters": None, "offload_param": None}),
        ("./scripts/zero2.json", {"stage": 2, "reduce_bucket_size": "auto", "offload_optimizer": None}),
        ("scripts/zero3_offload.json", {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}, "stage3_max_live_parameters": 1e9}),
        ("zero2", {"allgather_bucket_size": 2e8}),
        ("examples/deepspeed/ds_z2_config.json", {"round_robin_gradients": True}),
    ],
)
def test_deepspeeds_are_those_that_each_ships(path: str, zero: dict[str, object]) -> None:
    found = preset(path)
    assert found is not None
    assert {key: found[1]["zero_optimization"].get(key) for key in zero} == zero


@pytest.mark.parametrize("path", ["deepspeed_configs/zero3.json", "deepspeed_configs/zero2.json", "scripts/zero3.json", "zero3", "zero1_offload"])
def test_deepspeeds_are_read_by_the_engine(path: str) -> None:
    found = import_files([], command=shlex.split(f"torchrun --nproc_per_node 8 train.py --deepspeed {path} --model_name_or_path m --bf16"))
    assert read_deepspeed(found.layer.data["sharding"]["deepspeed"]).zero.stage == int(path.partition("zero")[2][0])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("zero3", {"sharding.engine": "deepspeed", "hardware.gpus": 8}),
        ("zero2 --num_processes 4", {"sharding.engine": "deepspeed", "hardware.gpus": 4}),
        ("fsdp2", {"sharding.engine": "fsdp2", "sharding.reshard_after_forward": True}),
        ("fsdp1", {"sharding.engine": "fsdp1", "sharding.fsdp_forward_prefetch": True}),
        ("multi_gpu", {"sharding.engine": "ddp", "hardware.gpus": 8}),
        ("single_gpu", {"hardware.gpus": 1}),
    ],
)
def test_trls_of_accelerate_by_name(name: str, told: dict[str, object]) -> None:
    found = import_files([], command=shlex.split(f"trl sft --model_name_or_path m --accelerate_config {name}"))
    values = {origin.key: origin.value for origin in found.origins}
    assert {key: values.get(key) for key in told} == told


def test_files_of_accelerate_that_are_not_there_by_their_folder() -> None:
    for path, cards in (("examples/accelerate_configs/deepspeed_zero3.yaml", 8), ("examples/accelerate/fsdp_config_offload.yaml", 2)):
        found = import_files([], command=shlex.split(f"accelerate launch --config_file {path} sft.py --model_name_or_path m --max_length 64"))
        assert found.layer.data["hardware"]["gpus"] == cards


def test_names_that_nobody_ships() -> None:
    assert preset("zero9") is None
    assert preset("../llama3_1/8B_full") is None
    with pytest.raises(InputError, match="not found"):
        import_files([], command=["tune", "run", "recipe", "--config", "llama9/8B_full"])


def test_trls_own_file_may_say_how_it_is_launched(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text("model_name_or_path: m\nmax_length: 64\naccelerate_config: zero2\nnum_processes: 4\n", encoding="utf-8")
    found = import_files([str(path)], command=["trl", "sft", "--config", str(path)]).layer.data
    assert (found["hardware"]["gpus"], found["sharding"]["engine"]) == (4, "deepspeed")
