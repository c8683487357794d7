"""Gemma 4's small text models: what layers share, and the count by transformers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.families.sizes import answers, build, check_shapes, counted

BASE: dict[str, Any] = {
    "model_type": "gemma4_text",
    "attention_k_eq_v": False,
    "enable_moe_block": False,
    "global_head_dim": 32,
    "head_dim": 16,
    "hidden_size": 64,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": 96,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 2,
    "pad_token_id": 0,
    "sliding_window": 32,
    "tie_word_embeddings": True,
    "use_double_wide_mlp": True,
    "vocab_size": 100,
    "vocab_size_per_layer_input": 90,
}


@pytest.mark.torch
@pytest.mark.parametrize("changed", [{}, {"num_kv_shared_layers": 0, "tie_word_embeddings": False}, {"use_double_wide_mlp": False, "attention_bias": True}])
def test_transformers_counts_the_same(changed: dict[str, Any]) -> None:
    spec = build(BASE, **changed)
    check_shapes(spec)
    assert spec.num_params == counted({**BASE, **changed})


def test_layers_that_take_keys_from_others_cache_nothing() -> None:
    """One layer with a window and one without have keys and values of their own."""
    found = answers(build(BASE), seq_len=50, task="inference").instant("decode")
    assert sum(term.bytes for term in found.terms if term.path.startswith("kv_cache")) == 2 * 2 * 2 * (16 + 32) * 50 * 2


def test_layers_behind_the_last_keys_see_the_tokens_that_get_logits() -> None:
    """Of a prompt that is one; with logits of all tokens, all."""
    last, whole = (answers(build(BASE), seq_len=500, task="inference", logits_to_keep=n).instant("prefill").allocated_bytes for n in (1, 0))
    assert last < whole
