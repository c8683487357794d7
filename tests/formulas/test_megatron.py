"""Megatron's estimators for states, to the integer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas.megatron import (
    aligned_numel,
    bridge_params_per_rank,
    buffer_numel,
    expert_data_parallel,
    megatron_lm_state_bytes,
    padded_vocab_size,
    shard_numel,
    state_bytes_per_param,
)


def test_megatron_lms_mixture() -> None:
    """tests/unit_tests/training/test_weight_and_optimizer_memory.py: a toy on 64 ranks, experts shared over four."""
    found = megatron_lm_state_bytes(
        tp_sharded=256 + 256 + 256 + 128, replicated=16 + 16 + 32, final_layernorm=8, experts=1024, embedding=256, tp=2, pp=2, ep=2, etp=4, dp=16, expert_dp=4
    )
    assert found == (((256 + 256 + 256 + 128) / 2 + 256) / 2 + (16 + 16 + 32 + 8) / 2) * 6.75 + (1024 / 2 / 8) * 9


def test_megatron_lms_latent_mixture() -> None:
    """The same file: projections to a latent are on every rank whole."""
    found = megatron_lm_state_bytes(
        tp_sharded=(256 + 256) + (256 + 128),
        replicated=16 + (16 + 64 + 32),
        final_layernorm=8,
        experts=512,
        embedding=256,
        tp=2,
        ep=2,
        etp=4,
        dp=16,
        expert_dp=4,
    )
    assert found == (((256 + 256) + (256 + 128) + 256) / 2 + 16 + (16 + 64 + 32) + 8) * 6.75 + (512 / 8) * 9


H, FFN, VOCAB = 16, 64, 32
ATTENTION, NORMS, NETWORK, FINAL, TABLE = 4 * H * H, 4 * H, 2 * H * FFN, 2 * H, H * VOCAB
"""The toy of Megatron-Bridge's tests: LayerNorm with biases, no others."""


def layer(*, experts: bool = False, shared: int = 0, latent: int = 0) -> int:
    """Dense parameters of one layer."""
    return ATTENTION + NORMS + (2 * H * shared + 2 * H * latent if experts else NETWORK)


def test_bridges_dense_model() -> None:
    """13,088 parameters; 3,400 on each rank, 9 bytes each."""
    layers = 4 * layer()
    assert layers + FINAL + TABLE == 13088
    per_rank = bridge_params_per_rank(by_stage=[layers // 2, layers // 2 + FINAL], embedding=TABLE, tp=2)
    assert per_rank == 3400
    assert per_rank * state_bytes_per_param(dtype="bfloat16", shards=4, distributed=True) == 30600


def test_bridges_uneven_stages() -> None:
    """Eight layers as 1, 2, 2, 3: the last stage holds its three and a table."""
    stages = [n * layer() for n in (1, 2, 2, 3)]
    stages[-1] += FINAL
    per_rank = bridge_params_per_rank(by_stage=stages, embedding=TABLE, tied=False, even=False)
    assert per_rank == 9952
    assert per_rank * 9 == 89568


def test_bridges_uneven_mixture() -> None:
    """The pattern 0 1 0 0 1 0 1 1 over the same stages: 5,856 dense and 4,096 routed on the heaviest."""
    pattern = (0, 1, 0, 0, 1, 0, 1, 1)
    cuts = ((0, 1), (1, 3), (3, 5), (5, 8))
    stages = [sum(layer(experts=bool(m)) for m in pattern[a:b]) for a, b in cuts]
    stages[-1] += FINAL
    assert bridge_params_per_rank(by_stage=stages, embedding=TABLE, tied=False, even=False) == 5856
    assert max(sum(pattern[a:b]) for a, b in cuts) * 2 * H * 32 * 2 == 4096


def test_bridges_expert_parallel_mixture() -> None:
    """Eight experts over four ranks: 8,992 dense (4,496 a rank, 6.75 bytes), 16,384 routed (4,096 a rank, 7.5 bytes); 61,068 bytes."""
    layers, routed = sum(layer(experts=i % 2 == 0) for i in range(4)), 2 * 8 * 2 * H * 32
    dense = layers + FINAL + TABLE
    assert (dense, routed) == (8992, 16384)
    per_rank = bridge_params_per_rank(by_stage=[layers + FINAL], embedding=TABLE, tp=2)
    expert_dp = expert_data_parallel(8 * 2 * 2, pp=1, ep=4, etp=1)
    states = per_rank * state_bytes_per_param(dtype="bfloat16", shards=8 * 2, distributed=True)
    expert_states = routed / 4 * state_bytes_per_param(dtype="bfloat16", shards=expert_dp, distributed=True)
    assert (per_rank, states, expert_states, states + expert_states) == (4496, 30348, 30720, 61068)


def test_bridges_shared_latent_and_predicted() -> None:
    """Shared experts, latent projections and one prediction layer: 11,232 dense, 3,072 routed."""
    pattern = (0, 1, 0, 1, 1)
    layers = sum(layer(experts=bool(m), shared=8, latent=4) for m in pattern)
    routed = sum(pattern) * 4 * 2 * 4 * 32
    assert (layers + FINAL + TABLE, routed) == (11232, 3072)
    assert bridge_params_per_rank(by_stage=[layers + FINAL], embedding=TABLE, tp=2) == 5616


def test_mixtrals_sample_of_mbridge() -> None:
    """3.75 billion parameters at 6.75 bytes: sixteen ranks share the states."""
    assert state_bytes_per_param(dtype="bfloat16", shards=16, distributed=True) == 6.75
    assert round(24151.92 * 2**20 / 6.75 / 1e9, 2) == 3.75


@given(st.integers(1, 10**9), st.integers(1, 600))
def test_shards_cover_a_buffer_with_less_than_one_unit_of_waste(num_params: int, shards: int) -> None:
    """All shards are equal, hold every element, and waste less than a parameter's alignment and a bucket's."""
    numel = buffer_numel(aligned_numel(num_params), shards=shards)
    part = shard_numel(numel, shards=shards)
    assert part * shards == numel
    assert 0 <= numel - num_params < 64 + 128 * shards


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_distributed_optimizer_over_one_rank_saves_nothing(dtype: str) -> None:
    """With d = 1 both are the same."""
    assert state_bytes_per_param(dtype=dtype, shards=1, distributed=True) == state_bytes_per_param(dtype=dtype, shards=8, distributed=False)


def test_a_vocabulary_that_divides_is_not_padded() -> None:
    """32,000 is a multiple of 128 times 2, not of 128 times 8."""
    assert padded_vocab_size(32000, tp=2) == 32000
    assert padded_vocab_size(32000, tp=8) == 32768
