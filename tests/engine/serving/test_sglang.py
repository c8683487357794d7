"""SGLang: what a share holds beside the weights."""

from __future__ import annotations

from typing import Any

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
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
