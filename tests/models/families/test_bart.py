"""BART and its relatives: what sets them apart, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import ModelError
from tests.models.families.sizes import answers, build

BASE: dict[str, Any] = {
    "model_type": "bart",
    "activation_dropout": 0.1,
    "activation_function": "gelu",
    "attention_dropout": 0.1,
    "d_model": 768,
    "decoder_attention_heads": 12,
    "decoder_ffn_dim": 3072,
    "decoder_layers": 6,
    "dropout": 0.1,
    "encoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "encoder_layers": 6,
    "max_position_embeddings": 1024,
    "scale_embedding": False,
    "vocab_size": 50265,
}
"""BART-base."""


def test_count_by_hand() -> None:
    """Table, positions and a norm for each stack; per layer four projections with biases, a network, and a norm for each branch."""
    norm, attention, network = 2 * 768, 4 * (768 * 768 + 768), 2 * 768 * 3072 + 3072 + 768
    front = 1026 * 768 + norm
    encoder, decoder = attention + network + 2 * norm, 2 * attention + network + 3 * norm
    assert build(BASE).num_params == 50265 * 768 + 2 * front + 6 * (encoder + decoder) == 139_420_416


def test_relatives_differ_by_norms_and_positions() -> None:
    """Final norms (mBART); no norm of the embeddings and fewer positions, which take no gradient (Marian); both (Pegasus)."""
    norm, positions = 2 * 768, 2 * 768
    counts = {name: build(BASE, model_type=name).num_params for name in ("bart", "mbart", "pegasus", "marian")}
    assert counts["mbart"] - counts["bart"] == 2 * norm
    assert counts["bart"] - counts["marian"] == 2 * (norm + positions)
    assert counts["pegasus"] - counts["marian"] == 2 * norm
    frozen = [path for path, weight, _ in build(BASE, model_type="marian").weights() if weight.frozen]
    assert frozen == ["shared/embed_positions/weight", "decoder_begin/embed_positions/weight"]


@pytest.mark.parametrize("key", ["tie_word_embeddings", "share_encoder_decoder_embeddings"])
def test_tables_of_their_own_are_refused(key: str) -> None:
    with pytest.raises(ModelError, match=f"{key} false is not known to memcalc for this family"):
        build(BASE, **{key: False})


def test_the_cache_holds_keys_and_values_of_the_encoder() -> None:
    """Of all its tokens in every layer of the decoder, beside those of the one token that the decoder begins with."""
    found = answers(build(BASE, encoder_layers=1, decoder_layers=2), seq_len=50, task="inference").instant("decode")
    each = 2 * 2 * 12 * 64 * 2
    assert sum(term.bytes for term in found.terms if term.path.startswith("kv_cache")) == 2 * each * (50 + 1)
