"""vLLM's groups of layers: pages of equal size, tokens as its log prints them."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.cache import LayerCache, Policy, layer_caches
from memcalc.engine.estimate import estimate
from memcalc.engine.result import Serving
from memcalc.engine.serving.groups import Groups, grouped
from memcalc.models.read import read_model
from memcalc.specs.read import read_run

SERVED = Policy(block=16, step_tokens=8192)


def groups(name: str, policy: Policy = SERVED) -> Groups:
    found = grouped(layer_caches(read_model(name).blocks), policy)
    assert found is not None
    return found


def test_gemma_4_31b_as_vllm_prints_it() -> None:
    """50 layers with windows and 10 without, whose pages are half as large: 24.54 GiB hold 26,800 tokens of 983,040 bytes (hf-mem's report)."""
    layers = (LayerCache("attention", 50, 16, 256, 256, 1024), LayerCache("attention", 10, 4, 512, 512))
    found = grouped(layers, SERVED)
    assert found is not None
    assert (found.num_groups, found.page_bytes * 6 // 16) == (6, 983_040)
    assert found.tokens(int(24.54 * 2**30)) == 26_800


@pytest.mark.parametrize(
    ("name", "num_groups", "layers"),
    [("gpt-oss-20b", 2, [12, 12]), ("gemma-3-27b", 7, [60, 10]), ("gemma-4-26b-a4b", 6, [25, 5]), ("qwen3.5-35b-a3b", 4, [30, 10])],
)
def test_layers_fill_up_groups(name: str, num_groups: int, layers: list[int]) -> None:
    """Gemma 3's 52 layers with windows take the room of 60."""
    found = groups(name)
    assert (found.num_groups, [cache.num_layers for cache in found.caches]) == (num_groups, layers)


@pytest.mark.parametrize(("dtype", "block"), [("bfloat16", 784), ("fp8", 1568)])
def test_blocks_are_as_large_as_a_state(dtype: str, block: int) -> None:
    """Qwen3.5-27B: 48 heads of 128 * 128 in fp32 and a convolution of 10,240 channels, over 4,096 bytes a token (2,048 in fp8)."""
    found = groups("qwen3.5-27b", Policy(dtype=dtype, block=16, step_tokens=8192, state_width=4))
    assert found.policy.block == block


def test_numbers_that_are_close_are_padded_to_the_larger() -> None:
    """12 and 13: gpt-oss-20b with one more layer for guessing."""
    found = grouped((LayerCache("attention", 12, 8, 64, 64, 128), LayerCache("attention", 13, 8, 64, 64)), SERVED)
    assert found is not None
    assert [cache.num_layers for cache in found.caches] == [13, 13]


def pool(model: str, **keys: Any) -> Serving:
    found = estimate(read_run(model, task="inference", code="vllm", gpu="h200-141g", max_model_len=32_768, **keys)).serving
    assert found is not None
    return found


def test_chunks_switch_groups_off() -> None:
    """All of Llama 4's layers keep all tokens: 48 * 4096 bytes over four ranks."""
    found = pool("llama-4-scout", tp=4, gpus=4)
    assert found.sequence_bytes == 32_768 * 48 * 4096 // 4


def test_alike_layers_are_one_group() -> None:
    assert grouped(layer_caches(read_model("llama-3.1-8b").blocks), SERVED) is None
    assert pool("qwen3.5-27b").kv_cache_bytes % groups("qwen3.5-27b", Policy(block=16, step_tokens=8192, state_width=4)).page_bytes == 0
