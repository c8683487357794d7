"""Qwen 2: biases on queries, keys and values, and windows in the upper layers where they are in use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from memcalc.errors import ModelError
from tests.models.families.sizes import build, closed_form, counted, decoders

SMALL: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "num_hidden_layers": 24,
    "vocab_size": 151936,
    "hidden_act": "silu",
    "sliding_window": 32768,
    "max_window_layers": 21,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
}


def windows(data: dict[str, Any], **changed: Any) -> list[tuple[int, int | None]]:
    """How many layers in a row see how many keys."""
    return [(block.repeat, block.module.self_attn.window) for block in build(data, **changed).blocks if block.role == "layer"]  # type: ignore[attr-defined]


def test_qwen2_5_0_5b_has_494_032_768_parameters() -> None:
    """A head is hidden size over heads wide: Qwen 2's files do not say."""
    assert build(SMALL).num_params == 494_032_768
    assert build(SMALL).head_dim == 64


def test_a_window_that_is_not_in_use_is_no_window() -> None:
    assert windows(SMALL) == [(24, None)]


def test_layers_from_max_window_layers_on_see_a_window() -> None:
    """As transformers derives layer_types where the file leaves them out."""
    assert windows(SMALL, use_sliding_window=True) == [(21, None), (3, 32768)]


def test_layer_types_say_which_layers_see_a_window() -> None:
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    assert windows(SMALL, use_sliding_window=True, num_hidden_layers=3, layer_types=kinds) == [(1, None), (2, 32768)]


@pytest.mark.parametrize("kinds", [["full_attention"], ["full_attention", "linear_attention", "full_attention"]])
def test_layer_types_that_do_not_fit_are_refused(kinds: list[str]) -> None:
    with pytest.raises(ModelError, match="layer_types must name full_attention or sliding_attention for each of the 3 layers"):
        build(SMALL, use_sliding_window=True, num_hidden_layers=3, layer_types=kinds)


@given(decoders("qwen2"))
def test_the_count_is_the_closed_form(data: dict[str, Any]) -> None:
    assert build(data).num_params == closed_form(data, qkv_bias=True)


@pytest.mark.torch
@given(decoders("qwen2"))
@settings(max_examples=5)
def test_transformers_counts_the_same(data: dict[str, Any]) -> None:
    assert build(data).num_params == counted(data)
