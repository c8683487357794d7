"""Attention written out: how much of the scores is alive at once, and what is saved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.tape.functional.attention_math import math_attention
from memcalc.tape.span import Span, sum_up
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis


def attend(*, batch: int, heads: int, length: int, dim: int, value_dim: int, masked: bool = False) -> Span:
    """Forward over bf16 inputs that stay with their caller."""
    tape = Tape()
    shape = (Axis("batch", batch), Axis("heads", heads), Axis("length", length))
    query, key = (tape.input((*shape, Axis("head_dim", dim)), "bfloat16", name, requires_grad=True) for name in ("query", "key"))
    value = tape.input((*shape, Axis("value_dim", value_dim)), "bfloat16", "value", requires_grad=True)
    mask = tape.input((shape[0], Axis("1", 1), shape[2], Axis("keys", length)), "bool", "mask") if masked else None
    begin = len(tape.events)
    out = math_attention(query, key, value, mask=mask, is_single=batch == 1)
    assert out.shape[-1].size == value_dim
    return sum_up(tape.events[begin:])


sizes = st.integers(1, 12)


@given(batch=sizes, heads=sizes, length=sizes, dim=sizes, value_dim=sizes)
def test_it_saves_scaled_inputs_and_probabilities_in_fp32(batch: int, heads: int, length: int, dim: int, value_dim: int) -> None:
    """And its output in the model's dtype beside them."""
    rows = batch * heads * length
    saved = 4 * rows * (2 * dim + length + value_dim) + 2 * rows * value_dim
    assert attend(batch=batch, heads=heads, length=length, dim=dim, value_dim=value_dim).net == saved


@pytest.mark.parametrize("length", [64, 128])
def test_two_tensors_of_scores_are_alive_at_once(length: int) -> None:
    """Scores, masked scores, probabilities: each in fp32 for every head, with the next beside it."""
    span = attend(batch=1, heads=8, length=length, dim=4, value_dim=4)
    scores = 4 * 8 * length**2
    assert 2 * scores < span.peak < 3 * scores


def test_a_mask_of_bools_becomes_one_of_scores_for_a_moment() -> None:
    """Nothing of it is saved."""
    args = {"batch": 2, "heads": 3, "length": 16, "dim": 8, "value_dim": 8}
    assert attend(**args, masked=True).net == attend(**args).net
