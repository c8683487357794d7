"""What torchtitan refuses, and what it decides."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.read import read_run


@pytest.mark.parametrize(
    ("model", "keys", "said"),
    [
        ("gemma-2b", {}, "torchtitan's models"),
        ("llama-3.1-8b", {"engine": "fsdp1", "dp": 8}, "fully_shard"),
        ("llama-3.1-8b", {"attention": "eager"}, "one fused kernel"),
        ("llama-3.1-8b", {"seq_len": 4100, "tp": 8, "gpus": 8}, "the nearest that do: 4096, 4104"),
        ("llama-3.1-8b", {"seq_len": 4102, "cp": 2, "gpus": 8}, "the nearest that do: 4100, 4104"),
        ("deepseek-v2-lite", {"tp": 2, "gpus": 8}, "not transcribed; tp can be 1"),
        ("llama-3.1-8b", {"task": "inference"}, "torchtitan trains"),
    ],
)
def test_what_torchtitan_does_not_run_is_refused_in_one_line(model: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(read_run(model, code="torchtitan", **keys))


def test_its_engine_is_fsdp2_with_the_ends_in_groups_of_their_own() -> None:
    """Angles of all positions are a buffer: complex ones of half a head (Llama 3), or cosines and sines in fp32 (Qwen3)."""
    job = resolve(read_run("llama-3.1-8b", code="torchtitan", gpus=8, seq_len=8192))
    assert (job.engine, job.run.sharding.fsdp_wrap_ends, job.model.buffer_bytes) == ("fsdp2", True, 8192 * 64 * 8)
    assert resolve(read_run("qwen3-8b", code="torchtitan", gpus=8, seq_len=8192)).model.buffer_bytes == 8192 * 256 * 4


def test_buffers_of_experts_are_a_correction_and_a_count_for_each() -> None:
    """DeepSeek-V3: 58 of 61 layers have 256 experts; angles are of the 64 rotary elements of a head."""
    job = resolve(read_run("deepseek-v3", code="torchtitan", gpus=64, seq_len=4096))
    assert job.model.buffer_bytes == 4096 * 64 * 4 + 58 * 256 * 8
