"""Gemma 3n's text model: the count by hand and by transformers, what layers share, and files that do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import ModelError
from tests.models.families.sizes import answers, build, check_shapes, counted

BASE: dict[str, Any] = {
    "model_type": "gemma3n_text",
    "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
    "altup_correct_scale": True,
    "altup_num_inputs": 3,
    "attention_bias": False,
    "final_logit_softcapping": 30.0,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 64,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": [96, 96, 80, 80],
    "laurel_rank": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 2,
    "pad_token_id": 0,
    "sliding_window": 32,
    "tie_word_embeddings": True,
    "vocab_size": 100,
    "vocab_size_per_layer_input": 90,
}


def test_count_by_hand() -> None:
    """Two tables, projections between streams, and in each layer attention, network, norms, a low rank, coefficients of streams, inputs of its own."""
    hidden, small, streams, layers = 64, 8, 3, 4
    ends = 100 * hidden + hidden + 90 * layers * small + hidden * layers * small + small + 2 * (streams - 1) * hidden**2
    queries, keys = 2 * hidden * 64 + 16, 2 * hidden * 32 + 16
    altup = 2 * hidden + hidden * streams + streams**2 + streams**3
    each = queries + 4 * hidden + altup + (2 * hidden * 4 + hidden) + (2 * hidden * small + hidden)
    networks = 3 * hidden * (96 + 96 + 80 + 80)
    spec = build(BASE)
    check_shapes(spec)
    assert spec.num_params == ends + layers * each + networks + 2 * keys


@pytest.mark.torch
@pytest.mark.parametrize("changed", [{}, {"num_kv_shared_layers": 0, "tie_word_embeddings": False}, {"attention_bias": True, "altup_correct_scale": False}])
def test_transformers_counts_the_same(changed: dict[str, Any]) -> None:
    assert build(BASE, **changed).num_params == counted({**BASE, **changed})


def test_layers_that_take_keys_from_others_cache_nothing() -> None:
    found = answers(build(BASE), seq_len=50, task="inference").instant("decode")
    assert sum(term.bytes for term in found.terms if term.path.startswith("kv_cache")) == 2 * 2 * 2 * 16 * 50 * 2 * 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"intermediate_size": [96]}, "intermediate_size has 1 numbers for 4 layers"), ({"hidden_size_per_layer_input": 0}, "has inputs of its own")],
)
def test_what_does_not_go_together_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        build(BASE, **changed)
