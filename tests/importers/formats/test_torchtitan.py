"""torchtitan's TOML and flags."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import Imported, import_files, import_text

TOML = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 4096
[parallelism]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "%s"
pipeline_parallel_microbatch_size = %d
"""


def keys(found: Imported) -> dict[str, Any]:
    """Keys and values."""
    return {origin.key: origin.value for origin in found.origins}


def told(schedule: str, size: int) -> dict[str, Any]:
    """Keys and values of a file."""
    return keys(import_text(TOML % (schedule, size), name="titan.toml", flags={"hardware.gpus": 8}))


def test_a_batch_goes_through_a_pipeline_in_parts() -> None:
    found = told("Interleaved1F1B", 2)
    assert (found["micro_batch"], found["grad_accum"], found["sharding.vpp"], found["sharding.pp_schedule"]) == (2, 4, 2, "interleaved")
    assert "sharding.vpp" not in told("1F1B", 1)
    assert told("1F1B", 1)["grad_accum"] == 8
    with pytest.raises(InputError, match="not cut"):
        told("1F1B", 3)


def test_what_a_step_adds_up_is_more_where_a_global_batch_says_so() -> None:
    text = TOML.replace("local_batch_size = 8", "local_batch_size = 8\nglobal_batch_size = 64")
    found = {schedule: keys(import_text(text % (schedule, 2), name="t.toml", flags={"hardware.gpus": 8})) for schedule in ("1F1B", "GPipe")}
    assert (found["1F1B"]["grad_accum"], found["GPipe"]["grad_accum"]) == (16, 4)


def test_the_name_of_a_registered_configuration_tells_the_model() -> None:
    words = "torchrun --nproc_per_node 8 -m torchtitan.train --module qwen3 --config qwen3_30b_a3b --training.max_context_length 8192"
    found = import_files([], command=shlex.split(f"{words} --training.num_tokens_per_microbatch_per_dp_rank 16384"))
    assert (keys(found)["model"], keys(found)["seq_len"], keys(found)["micro_batch"]) == ("qwen3-30b-a3b", 8192, 2)
    assert any("sets in Python is not seen" in line for line in found.unused)
