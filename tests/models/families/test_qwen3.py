"""Qwen 3: a norm on each head's queries and keys, and a head width of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families.sizes import build, closed_form, counted, decoders


@given(decoders("qwen3"), st.booleans())
def test_the_count_is_the_closed_form(data: dict[str, Any], bias: bool) -> None:
    assert build(data, attention_bias=bias).num_params == closed_form(data, qkv_bias=bias, o_bias=bias, qk_norm=True)


@given(decoders("qwen3", num_hidden_layers=1))
def test_norms_of_queries_and_keys_are_one_head_wide(data: dict[str, Any]) -> None:
    shapes = {path: [axis.size for axis in weight.shape] for path, weight, _ in build(data).weights()}
    assert shapes["layers/self_attn/q_norm/weight"] == shapes["layers/self_attn/k_norm/weight"] == [data["head_dim"]]


def test_without_head_dim_a_head_is_as_wide_as_the_class_says() -> None:
    """Qwen3Config has 128, whatever hidden size and heads are."""
    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 8}
    assert build({"model_type": "qwen3", **sizes, "num_key_value_heads": 8}).head_dim == 128


@pytest.mark.torch
@given(decoders("qwen3"))
@settings(max_examples=5)
def test_transformers_counts_the_same(data: dict[str, Any]) -> None:
    assert build(data).num_params == counted(data)
