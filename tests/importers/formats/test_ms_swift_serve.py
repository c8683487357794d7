"""What ms-swift serves and generates with."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.specs.read import merged


def run_of(command: str) -> dict[str, Any]:
    return merged([import_files([], command=shlex.split(command)).layer]).as_dict()


def test_vllm_by_its_arguments_with_its_name_in_front() -> None:
    found = run_of("swift deploy --model qwen2.5-7b --infer_backend vllm --vllm_tensor_parallel_size 2 --vllm_max_model_len 8192 --adapters one two")
    assert (found["code"], found["task"], found["sharding"]["tp"], found["hardware"]["gpus"]) == ("vllm", "inference", 2, 2)
    assert (found["serving"]["gpu_memory_utilization"], found["serving"]["max_num_seqs"], found["serving"]["max_loras"]) == (0.9, 256, 2)


def test_a_rollout_is_served_by_vllm() -> None:
    assert run_of("swift rollout --model qwen2.5-7b --vllm_gpu_memory_utilization 0.8")["serving"]["gpu_memory_utilization"] == 0.8


def test_transformers_spread_over_the_cards_that_one_process_sees() -> None:
    found = run_of("CUDA_VISIBLE_DEVICES=0,1 swift infer --model qwen2.5-7b --max_batch_size 4 --max_new_tokens 512 --infer_backend transformers")
    assert (found["micro_batch"], found["new_tokens"], found["hardware"]["gpus"], found["loading"]["device_map"]) == (4, 512, 2, "auto")


@pytest.mark.parametrize("command", ["swift export --model qwen2.5-7b", "megatron export --model qwen2.5-7b", "swift infer --infer_backend lmdeploy"])
def test_what_neither_trains_nor_serves_is_refused(command: str) -> None:
    with pytest.raises(InputError, match=r"neither trains|does not train|lmdeploy is not counted"):
        run_of(command)
