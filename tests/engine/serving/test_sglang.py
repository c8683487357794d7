"""SGLang: what a share holds beside the weights."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import ShardingError
from memcalc.formulas.overheads import CUDA_CONTEXT_BYTES
from memcalc.specs.read import read_run


def serve(**keys: Any) -> Estimate:
    return estimate(read_run("llama-3.1-8b", task="inference", code="sglang", gpu="h100-80g", **keys))


def test_weights_and_cache_are_the_share() -> None:
    """Of what is free once the context is there."""
    answer = serve(mem_fraction_static=0.8)
    assert answer.serving is not None
    free = answer.serving.budget_bytes
    held = answer.instant("decode").allocated_bytes
    assert 0 <= int(free * 0.8) - held < answer.serving.token_bytes
    assert answer.verdict is not None
    assert answer.verdict.capacity_bytes - free == CUDA_CONTEXT_BYTES


def test_the_share_follows_the_card_where_it_is_left_open() -> None:
    assert any(line.startswith("mem_fraction_static 0.835") for line in serve().assumptions)


def test_tokens_may_be_limited() -> None:
    answer = serve(max_total_tokens=1000)
    assert answer.serving is not None
    assert answer.serving.kv_tokens == 1000


def dp_attention(**keys: Any) -> Estimate:
    run = read_run("deepseek-v3", task="inference", code="sglang", gpu="h200-141g", gpus=8, tp=8, max_model_len=8192, **keys)
    return estimate(run)


def test_attention_by_sequence_holds_other_sequences_on_every_rank() -> None:
    """DeepSeek-V3's latents are whole on every rank anyway: with dp 8 each rank has its own, and eight times as many in all, less heavier weights."""
    plain, spread = dp_attention().serving, dp_attention(dp=8, enable_dp_attention=True).serving
    assert plain is not None
    assert spread is not None
    assert spread.token_bytes == plain.token_bytes == 70_272
    assert 6 * plain.max_concurrency < spread.max_concurrency < 8 * plain.max_concurrency
    assert spread.largest_model_len == plain.largest_model_len == 163_840


def test_dp_of_attention_is_inside_tp() -> None:
    with pytest.raises(ShardingError, match="no multiple"):
        dp_attention(dp=3, enable_dp_attention=True)
    with pytest.raises(ShardingError, match="code: sglang"):
        estimate(read_run("deepseek-v3", task="inference", code="vllm", gpu="h200-141g", tp=8, dp=8, enable_dp_attention=True))
