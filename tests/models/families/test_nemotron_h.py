"""Nemotron-H: its pattern of layers, as letters or as words."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import ModelError
from memcalc.models.config import Config
from memcalc.models.families import nemotron_h
from tests.models.families.sizes import build


def kinds(**data: Any) -> tuple[str, ...]:
    """The kinds of layers of a file."""
    return nemotron_h.layer_kinds(Config({"model_type": "nemotron_h", **data}, where="config.json"))


def test_letters_and_words_say_the_same() -> None:
    """Words of older files, too."""
    assert kinds(hybrid_override_pattern="ME*-") == ("linear_attention", "moe", "full_attention", "mlp")
    assert kinds(layers_block_type=["mamba", "moe", "attention", "mlp"]) == kinds(hybrid_override_pattern="ME*-")


def test_an_unknown_kind_is_named_with_those_there_are() -> None:
    with pytest.raises(ModelError, match=r"'X' is no kind of layer; known are linear_attention \(M\), moe \(E\)"):
        kinds(hybrid_override_pattern="MXE")


def test_layers_are_never_guessed() -> None:
    with pytest.raises(ModelError, match="leaves out layers_block_type"):
        kinds()


def test_the_head_never_uses_the_table() -> None:
    """Whatever the file says: transformers' class has no weights to tie."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 24}
    apart, tied = (
        build({"model_type": "nemotron_h", "hybrid_override_pattern": "*-", "mlp_bias": False, "tie_word_embeddings": word, **sizes}) for word in (False, True)
    )
    assert apart.num_params == tied.num_params
