"""Experts over a server's cards: vLLM's data-parallel ranks share them, and each sees every rank's tokens."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.resolve import resolve
from memcalc.engine.result import Estimate
from memcalc.engine.serving.experts import spread_of
from memcalc.errors import ShardingError
from memcalc.specs.read import read_run
from memcalc.specs.run import Run

SHARED_BYTES = 58 * 3 * (7168 * 2048 + 56 * 16 * 4)
"""DeepSeek-V3's shared experts: fp8, and a scale in fp32 for each block of 128 by 128."""


def run(model: str = "deepseek-v3", **keys: Any) -> Run:
    gpus = keys.get("tp", 1) * keys.get("dp", 1)
    return read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h200-141g", "gpus": gpus, "max_model_len": 16_384, **keys})


def loaded(**keys: Any) -> int:
    return estimate(run(**keys)).instant("load").allocated_bytes


@pytest.mark.parametrize(
    ("keys", "spread"),
    [
        ({"tp": 8}, (8, 1, 1, 8)),
        ({"tp": 8, "enable_expert_parallel": True}, (1, 8, 1, 8)),
        ({"tp": 4, "dp": 2}, (8, 1, 2, 4)),
        ({"tp": 4, "dp": 2, "enable_expert_parallel": True}, (1, 8, 2, 1)),
        ({"dp": 8}, (8, 1, 8, 1)),
        ({"tp": 8, "code": "sglang"}, (8, 1, 1, 8)),
    ],
)
def test_experts_are_over_all_cards(keys: dict[str, Any], spread: tuple[int, ...]) -> None:
    assert spread_of(resolve(run(**keys))) == spread


def test_data_parallel_ranks_share_experts_one_way_or_the_other() -> None:
    assert loaded(dp=8) == loaded(dp=8, enable_expert_parallel=True) < 96 * 2**30


def test_ranks_with_tokens_of_their_own_hold_shared_experts_whole() -> None:
    assert loaded(tp=4, dp=2, enable_expert_parallel=True) - loaded(tp=4, dp=2) == SHARED_BYTES * 3 // 4


def test_every_rank_sees_all_tokens() -> None:
    """At so few sequences the sampler is small; of eight ranks more tokens are inside, in no more than one chunk of them."""

    def activations(**keys: Any) -> int:
        answer: Estimate = estimate(run(max_num_seqs=16, enable_expert_parallel=True, **keys))
        return sum(term.bytes for term in answer.instant("prefill").terms if term.path.startswith("activations"))

    assert 4 * activations(tp=8) < activations(dp=8)


def test_dense_replicas_are_engines_of_their_own() -> None:
    assert loaded(model="llama-3.1-8b", dp=2) == loaded(model="llama-3.1-8b")


def test_blocks_of_fp8_are_whole_on_every_rank() -> None:
    """2,048 over 32 ranks is half a block; vLLM and SGLang raise while they make the weights."""
    with pytest.raises(ShardingError, match=r"64 wide.*enable_expert_parallel"):
        resolve(run(tp=32))
    with pytest.raises(ShardingError, match="64 wide"):
        resolve(run(tp=32, code="sglang"))
    assert resolve(run(tp=32, enable_expert_parallel=True)).mesh.tp == 32
