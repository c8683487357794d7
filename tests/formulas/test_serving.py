"""Budgets and activations of servers, by hand."""

from __future__ import annotations

import pytest

from memcalc.formulas import serving


@pytest.mark.parametrize(("vocab", "read", "hidden"), [(128_256, 4.76, 4096), (151_936, 5.56, 1024), (201_088, 7.38, 2880)])
def test_vllms_profiling_run_peaks_in_its_sampler(vocab: int, read: float, hidden: int) -> None:
    """1024 sorted rows of logits on the hidden states of 8192 tokens: what llm-d-planner read of three models on H100, within 1.5 %."""
    found = serving.sampler_bytes(num_seqs=1024, vocab_size=vocab, width=2) + 8192 * hidden * 2
    assert found / 2**30 == pytest.approx(read, rel=0.015)


def test_the_sampler_holds_38_bytes_of_each_logit() -> None:
    """bf16 logits, fp32 copy, sorted values and indices, first indices, CUB's second keys and indices."""
    assert serving.sampler_bytes(num_seqs=1, vocab_size=1, width=2) == 2 + 4 + 4 + 8 + 8 + 4 + 8


def test_experts_share_one_workspace() -> None:
    """Gate and up, and later what comes down, stand in one; the product in another; one row comes out."""
    assert serving.experts_inside(num_tokens=10, top_k=2, hidden_size=64, intermediate_size=16) == 2 * (64 + 16) + 64
    assert serving.experts_inside(num_tokens=10, top_k=2, hidden_size=16, intermediate_size=64) == 2 * (128 + 64) + 16


def test_experts_take_a_chunk_at_a_time() -> None:
    """Twice the tokens hold half as much each."""
    assert serving.experts_inside(num_tokens=65_536, top_k=1, hidden_size=64, intermediate_size=64) == (128 + 64) // 2 + 64


def test_sglang_reserves_no_less_than_10_gib_on_large_cards() -> None:
    assert serving.sglang_fraction(total_mib=81_559, chunked_prefill=2048, tp=1, pp=1, decode_max_bs=8) == round(1 - 10_240 / 81_559, 3)
    assert serving.sglang_fraction(total_mib=24_000, chunked_prefill=2048, tp=1, pp=1, decode_max_bs=8) == round(1 - (512 + 3072 + 128 + 16) / 24_000, 3)


def test_no_engine_of_tensorrt_has_less_than_70_mib() -> None:
    assert serving.trtllm_activation_bytes(num_tokens=1, width=1, tp=1) == 70 * 2**20


def test_experts_double_tensorrts_activations() -> None:
    dense, moe = (serving.trtllm_activation_bytes(num_tokens=8192, width=4096, tp=8, kind=kind) for kind in ("dense", "moe"))
    assert moe == 2 * dense
