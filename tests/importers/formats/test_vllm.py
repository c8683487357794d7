"""What vLLM and SGLang are told about guessing, and SGLang about attention by sequence."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.specs.read import merged

VLLM = "vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 --speculative-config "


def run_of(command: str) -> dict[str, Any]:
    return merged([import_files([], command=shlex.split(command)).layer]).as_dict()


def test_a_draft_as_json() -> None:
    found = run_of(VLLM + """'{"model": "meta-llama/Llama-3.2-1B", "num_speculative_tokens": 5, "method": "draft_model", "max_model_len": 2048}'""")["serving"]
    assert (found["speculative_model"], found["speculative_method"], found["num_speculative_tokens"]) == ("meta-llama/Llama-3.2-1B", "draft_model", 5)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(InputError, match="accepted: JSON"):
        run_of(VLLM + "eagle")


def test_sglangs_dp_is_inside_tp() -> None:
    found = run_of("python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention --speculative-algorithm NEXTN")
    assert (found["hardware"]["gpus"], found["sharding"]["tp"], found["sharding"]["dp"]) == (8, 8, 8)
    assert (found["serving"]["enable_dp_attention"], found["serving"]["speculative_method"]) == (True, "mtp")
