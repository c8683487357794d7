"""Mistral: no biases, and one window for every layer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from memcalc.components import Attention
from tests.models.families.sizes import build, closed_form, counted, decoders


@given(decoders("mistral"))
def test_the_count_is_the_closed_form(data: dict[str, Any]) -> None:
    assert build(data).num_params == closed_form(data)


@given(decoders("mistral", sliding_window=16))
def test_every_layer_sees_the_same_window(data: dict[str, Any]) -> None:
    for window in (16, None):
        (attention,) = {block.module.self_attn for block in build(data, sliding_window=window).blocks if block.role == "layer"}  # type: ignore[attr-defined]
        assert isinstance(attention, Attention)
        assert attention.window == window


@pytest.mark.torch
@given(decoders("mistral"))
@settings(max_examples=5)
def test_transformers_counts_the_same(data: dict[str, Any]) -> None:
    assert build(data).num_params == counted(data)
