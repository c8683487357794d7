"""accelerate's products in fp8 and sequences over ranks, and a DeepSpeed file that is not there."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.cli import main
from memcalc.errors import InputError
from memcalc.importers import Imported, import_files, import_text
from memcalc.specs.read import merged

FSDP = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nmixed_precision: fp8\nnum_processes: 8\n"
LOST = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --model_name_or_path llama-7b --deepspeed lost.json"


def layer(text: str) -> dict[str, Any]:
    return dict(import_text(text).layer.data)


@pytest.mark.parametrize(("backend", "products"), [("fp8_config: {backend: TE}", "te"), ("fp8_config: {backend: AO}", "torchao"), ("", "torchao")])
def test_products_in_fp8_by_the_backend(backend: str, products: str) -> None:
    found = layer(f"{FSDP}{backend}\n")
    assert (found["fp8"], found["dtype"], found["autocast"]) == (products, "float32", "bfloat16")


def test_a_backend_that_is_not_counted_is_listed() -> None:
    found = import_text(f"{FSDP}fp8_config: {{backend: MSAMP}}\n")
    assert "fp8" not in found.layer.data
    assert any("(msamp) are counted of whole training" in line for line in found.unused)


def test_sequences_over_ranks_leave_all_cards_the_states() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nnum_processes: 8\nparallelism_config: {parallelism_config_sp_size: 4}\n"
    found = layer(f"compute_environment: LOCAL_MACHINE\n{text}")["sharding"]
    assert (found["cp"], found["engine"], "dp" in found) == (4, "deepspeed", False)


def lost(**flags: Any) -> Imported:
    return import_files([], command=shlex.split(LOST), flags={f"sharding.{key}": value for key, value in flags.items()})


def test_a_stage_on_the_command_line_stands_in_for_a_file_that_is_not_there() -> None:
    found = lost(zero=3)
    assert any("'lost.json' is not found; --zero stands in for it" in line for line in found.unused)
    assert merged([found.layer]).sharding.engine == "deepspeed"
    with pytest.raises(InputError, match="or a stage with --zero"):
        lost()


def test_a_file_without_a_model_says_what_it_is(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(FSDP)
    assert main(["estimate", str(path)]) == 2
    assert "accelerate.yaml is accelerate YAML, and no model stands in it" in capsys.readouterr().err
