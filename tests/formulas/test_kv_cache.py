"""Caches by hand: published rates, storage types, blocks, windows, states; ints and arrays alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.errors import UnknownNameError
from memcalc.formulas import kv_cache

BF16 = "bfloat16"


def attention(heads: int, dim: int, dtype: str = BF16, tp: int = 1) -> int:
    return int(kv_cache.attention_token_bytes(num_kv_heads=heads, key_dim=dim, value_dim=dim, dtype=dtype, tp=tp))


@pytest.mark.parametrize(
    ("layers", "heads", "dim", "rate"),
    [(32, 8, 128, 131_072), (28, 4, 128, 57_344), (80, 8, 128, 327_680), (40, 8, 128, 163_840), (32, 32, 128, 524_288)],
    ids=["Llama-3.1-8B", "Qwen2.5-7B", "Llama-3.1-70B", "Mistral-Small-24B", "7B multi-head"],
)
def test_published_rates_per_token(layers: int, heads: int, dim: int, rate: int) -> None:
    assert layers * attention(heads, dim) == rate


@pytest.mark.parametrize(("tp", "part"), [(1, 1), (4, 4), (8, 8), (16, 8)])
def test_ranks_share_heads_until_each_has_one(tp: int, part: int) -> None:
    """Beyond that heads are replicated."""
    assert 80 * attention(8, 128, tp=tp) == 327_680 // part


def test_a_latent_is_the_same_on_every_rank() -> None:
    """DeepSeek-V3: 61 * (512 + 64) * 2, whatever tp."""
    assert 61 * kv_cache.latent_token_bytes(latent_dim=512, rope_dim=64, dtype=BF16) == 70_272


def test_a_latent_expands_to_keys_and_values_of_every_head() -> None:
    assert kv_cache.expanded_token_bytes(num_heads=128, nope_dim=128, rope_dim=64, value_dim=128, dtype=BF16) == 128 * (192 + 128) * 2


def test_minimax_m2_at_its_full_length_in_fp8() -> None:
    """As hf-mem publishes it."""
    assert 62 * attention(8, 128, "fp8") * 196_608 == 24_964_497_408


def test_a_hybrid_grows_fast_up_to_its_window_and_slowly_behind_it() -> None:
    """25 layers with a window of 1024 and 5 without, 8 heads of 128."""

    def total(length: int) -> int:
        return attention(8, 128) * int(25 * kv_cache.kept_tokens(length, 1024) + 5 * length)

    assert total(1024) - total(1023) == 30 * 4096
    assert total(1025) - total(1024) == 5 * 4096


def test_gpt_oss_20b_full_and_capped() -> None:
    """32 sequences of 8192: 12.00 GiB in all layers, 6.09 where half of them keep 128 tokens."""
    rate = attention(8, 64)
    assert 24 * rate * 8192 * 32 == 12 * 2**30
    assert round(12 * rate * (8192 + kv_cache.kept_tokens(8192, 128)) * 32 / 2**30, 2) == 6.09


@pytest.mark.parametrize(("gib", "tp", "blocks"), [(68.89, 1, 376_231), (68.09, 2, 743_724)])
def test_blocks_of_qwen_05b(gib: float, tp: int, blocks: int) -> None:
    """As llm-d-planner counts them."""
    assert kv_cache.num_blocks(int(gib * 2**30), block=16, token_bytes=24 * attention(2, 64, tp=tp)) == blocks


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 512), ("bf16", 256), ("fp8_e5m2", 128), ("int8", 128), ("int4", 72), ("nvfp4", 72), ("q8_0", 136), ("q4_0", 72), ("q5_1", 96)],
)
def test_a_row_of_128_values_in_each_type(dtype: str, size: int) -> None:
    """Values and their scales."""
    assert kv_cache.stored_bytes(128, dtype) == size


def test_keys_and_values_may_differ_in_type() -> None:
    """llama.cpp's --cache-type-k q8_0 with values in 16 bits: 1.0625 and 2 bytes."""
    found = kv_cache.attention_token_bytes(num_kv_heads=16, key_dim=128, value_dim=128, dtype="q8_0", value_dtype="f16")
    assert found == 16 * 128 * (1.0625 + 2)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnknownNameError, match="fp9"):
        kv_cache.stored_bytes(128, "fp9")


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_blocks_hold_the_tokens_and_less_than_one_more(tokens: int, block: int) -> None:
    padded = kv_cache.padded_tokens(tokens, block)
    assert padded % block == 0
    assert 0 <= padded - tokens < block


@given(st.lists(st.integers(1, 10**6), min_size=1), st.integers(2, 10**5))
def test_arrays_give_what_ints_give(lengths: list[int], window: int) -> None:
    array = np.asarray(lengths, dtype=np.int64)
    for whole, one in (
        (kv_cache.kept_tokens(array, window), [kv_cache.kept_tokens(n, window) for n in lengths]),
        (
            kv_cache.window_blocks(array, window=window, block=16, max_num_batched_tokens=64),
            [kv_cache.window_blocks(n, window=window, block=16, max_num_batched_tokens=64) for n in lengths],
        ),
        (kv_cache.local_heads(8, array), [kv_cache.local_heads(8, n) for n in lengths]),
    ):
        assert whole.tolist() == one


@given(st.integers(1, 10**6), st.integers(2, 10**5), st.integers(1, 10**4))
def test_a_window_never_needs_more_than_its_tokens_and_two_blocks(length: int, window: int, step: int) -> None:
    blocks = kv_cache.window_blocks(length, window=window, block=16, max_num_batched_tokens=step)
    assert 16 * blocks <= min(length, window - 1 + step) + 2 * 16
