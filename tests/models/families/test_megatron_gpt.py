"""GPT of Megatron's flags: its parameters, counted by hand, and its step, against the models whose shape it can take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import ModelError
from memcalc.models.read import read_model
from memcalc.specs.read import read_run

H, L, A, V, S = 512, 12, 8, 50_257, 1024
BASE = {"model_type": "megatron_gpt", "num_layers": L, "hidden_size": H, "num_attention_heads": A, "vocab_size": V, "max_position_embeddings": S}
GPT2 = {"model_type": "gpt2", "n_embd": H, "n_head": A, "n_layer": L, "n_positions": S, "vocab_size": V, "architectures": ["GPT2LMHeadModel"]}
LLAMA = {
    "model_type": "llama", "hidden_size": H, "num_hidden_layers": L, "num_attention_heads": A, "num_key_value_heads": 2, "intermediate_size": 1408,
    "vocab_size": V, "max_position_embeddings": S, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
AS_LLAMA = {
    "num_query_groups": 2, "ffn_hidden_size": 1408, "swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False, "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True, "hidden_dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip


def params(**keys: Any) -> int:
    return read_model(json.dumps(BASE | keys)).num_params


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        ({}, 0),
        ({"qk_layernorm": True}, L * 2 * 2 * H // A),
        ({"untie_embeddings_and_output_weights": True}, V * H),
        ({"position_embedding_type": "rope"}, -S * H),
        ({"add_bias_linear": False}, -L * (3 * H + H + 4 * H + H)),
        ({"add_bias_linear": False, "add_qkv_bias": True}, -L * (H + 4 * H + H)),
        ({"num_query_groups": 2}, -L * 2 * (H + 1) * (H - 2 * H // A)),
        ({"kv_channels": 96}, L * ((H + 1) * 3 * (96 * A - H) + H * (96 * A - H))),
        ({"swiglu": True}, L * (3 * H * 1344 + 2 * 1344 + H - (2 * H * 4 * H + 4 * H + H))),
        ({"num_experts": 8, "moe_router_topk": 1, "moe_layers": [1] * L}, L * (8 * H + 8 * 2 * H * 4 * H - (2 * H * 4 * H + 4 * H + H))),
    ],
)
def test_each_flag_changes_what_it_names(keys: dict[str, Any], more: int) -> None:
    plain = V * H + S * H + 2 * H + L * (4 * H * H + 4 * H + 8 * H * H + 5 * H + 4 * H)
    assert params(**keys) == plain + more


@pytest.mark.parametrize(("shape", "like"), [({}, GPT2), (AS_LLAMA, LLAMA)])
def test_the_same_shape_is_the_same_step(shape: dict[str, Any], like: dict[str, Any]) -> None:
    """Under Megatron's modules, tensor and sequence parallelism."""
    keys: dict[str, Any] = {"code": "megatron", "engine": "megatron", "micro_batch": 2, "seq_len": S, "tp": 2, "sp": True, "gpus": 4}
    found = [{i.name: i.allocated_bytes for i in estimate(read_run(json.dumps(each), **keys)).most_loaded.instants} for each in (BASE | shape, like)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"position_embedding_type": "alibi"}, "position_embedding_type 'alibi'"),
        ({"normalization": "groupnorm"}, "normalization 'groupnorm'"),
        ({"num_query_groups": 3}, "not a multiple of num_query_groups 3"),
        ({"num_experts": 4, "moe_router_topk": 5, "moe_layers": [1] * L}, "more than the 4 experts"),
        ({"num_experts": 4, "moe_layers": [1] * 3}, "names 3 layers of 12"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_what_cannot_be(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        params(**keys)


def test_a_tokenizer_brings_the_vocabulary_of_its_model() -> None:
    shape = {key: value for key, value in BASE.items() if key != "vocab_size"}
    found = read_model(json.dumps(shape | {"tokenizer_model": "llama-3.1-8b"}))
    assert found.vocab_size == 128_256
    assert any("llama-3.1-8b" in line for line in found.assumed)
