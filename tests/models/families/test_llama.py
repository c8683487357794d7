"""Llama: counts by hand and by transformers, and the laws of every decoder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memcalc.tape.tensor import numel
from tests.models.families.sizes import build, closed_form, counted, decoders

SEVEN: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
}


def test_llama_7b_has_6_738_415_616_parameters() -> None:
    """Touvron et al. 2023, table 2: 6.7B; the tree adds up to each of its parts."""
    spec = build(SEVEN)
    assert spec.num_params == 6_738_415_616
    assert [(block.path, block.num_params) for block in spec.blocks] == [
        ("embed_tokens", 131_072_000),
        ("layers", 6_476_267_520),
        ("norm", 4096),
        ("lm_head", 131_072_000),
    ]
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.max_position_embeddings) == (32, 32, 32, 128, 2048)
    assert spec.buffer_bytes == 512


def test_weights_have_the_names_and_shapes_of_the_models_own_code() -> None:
    weights = {path: tuple(axis.size for axis in weight.shape) for path, weight, _ in build(SEVEN).weights()}
    assert weights == {
        "embed_tokens/weight": (32000, 4096),
        "layers/input_layernorm/weight": (4096,),
        "layers/self_attn/q_proj/weight": (4096, 4096),
        "layers/self_attn/k_proj/weight": (4096, 4096),
        "layers/self_attn/v_proj/weight": (4096, 4096),
        "layers/self_attn/o_proj/weight": (4096, 4096),
        "layers/post_attention_layernorm/weight": (4096,),
        "layers/mlp/gate_proj/weight": (11008, 4096),
        "layers/mlp/up_proj/weight": (11008, 4096),
        "layers/mlp/down_proj/weight": (4096, 11008),
        "norm/weight": (4096,),
        "lm_head/lm_head/weight": (32000, 4096),
    }


def test_tensor_parallelism_cuts_outputs_then_inputs() -> None:
    """The plan of transformers' LlamaConfig: columns of the first, rows of the second linear layer."""
    cuts = {path.removeprefix("layers/"): weight.cuts for path, weight, _ in build(SEVEN, attention_bias=True).weights()}
    assert {cuts[f"self_attn/{name}_proj/weight"] for name in "qkv"} == {cuts[f"mlp/{name}_proj/weight"] for name in ("gate", "up")} == {(("column", 0),)}
    assert cuts["self_attn/o_proj/weight"] == cuts["mlp/down_proj/weight"] == (("row", 1),)
    assert (cuts["self_attn/q_proj/bias"], cuts["self_attn/o_proj/bias"]) == ((("column", 0),), ())
    assert (cuts["embed_tokens/weight"], cuts["lm_head/lm_head/weight"]) == ((("vocab", 0),), (("column", 0),))


@given(decoders("llama"), st.booleans(), st.booleans())
def test_the_count_is_the_closed_form(data: dict[str, Any], attention_bias: bool, mlp_bias: bool) -> None:
    spec = build(data, attention_bias=attention_bias, mlp_bias=mlp_bias)
    assert spec.num_params == closed_form(data, qkv_bias=attention_bias, o_bias=attention_bias, mlp_bias=mlp_bias)
    assert spec.num_params == sum(numel(weight.shape) * copies for _, weight, copies in spec.weights())


@given(decoders("llama"))
def test_tying_removes_one_table(data: dict[str, Any]) -> None:
    untied, tied = build(data, tie_word_embeddings=False), build(data, tie_word_embeddings=True)
    assert untied.num_params - tied.num_params == data["vocab_size"] * data["hidden_size"]


@given(decoders("llama"))
def test_as_many_kv_heads_as_heads_is_multi_head_attention(data: dict[str, Any]) -> None:
    spec = build(data, num_key_value_heads=data["num_attention_heads"])
    shapes = {path: weight.shape[0].size for path, weight, _ in spec.weights()}
    assert shapes["layers/self_attn/k_proj/weight"] == shapes["layers/self_attn/q_proj/weight"]


@pytest.mark.torch
@given(decoders("llama"), st.booleans(), st.booleans())
@settings(max_examples=10)
def test_transformers_counts_the_same(data: dict[str, Any], attention_bias: bool, mlp_bias: bool) -> None:
    biased = {**data, "attention_bias": attention_bias, "mlp_bias": mlp_bias}
    assert build(biased).num_params == counted(biased)
