"""What a model's checkpoint takes."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.models.quantization import read_quantization
from memcalc.models.stored import module_names, stored
from memcalc.specs.model import ModelSpec
from tests.models.families.sizes import build

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "hidden_act": "silu",
    "attention_bias": True,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
LINEAR = 3 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 256)
"""Elements of all linear layers in the layers."""

GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_hidden_layers": 36,
    "vocab_size": 201088,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}


def bytes_of(spec: ModelSpec, config: dict[str, Any] | None, dtype: str = "bfloat16") -> Any:
    """Its checkpoint."""
    return stored(spec, None if config is None else read_quantization({"quantization_config": config}, where="config.json"), dtype)


def test_without_quantization_it_is_all_parameters_in_their_dtype() -> None:
    spec = build(LLAMA)
    found = bytes_of(spec, None)
    assert (found.plain_params, found.bytes) == (spec.num_params, 2 * spec.num_params)
    assert bytes_of(spec, None, "float32").bytes == 4 * spec.num_params


@pytest.mark.parametrize("config", [{"quant_method": "bitsandbytes", "load_in_8bit": True}, {"quant_method": "fp8"}, {"quant_method": "gptq", "bits": 8}])
def test_linear_layers_are_quantised_and_nothing_else(config: dict[str, Any]) -> None:
    """Not the table, the head, norms or biases."""
    spec = build(LLAMA)
    found = bytes_of(spec, config)
    assert found.quantised_params == LINEAR
    assert found.plain_params == spec.num_params - LINEAR
    assert found.plain_bytes == 2 * found.plain_params


def test_layers_are_told_apart_by_their_number() -> None:
    found = bytes_of(build(LLAMA), {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1", "lm_head"]})
    assert found.quantised_params == LINEAR * 2 // 3


def test_gpt_oss_is_as_large_as_its_index_says() -> None:
    """total_size of openai/gpt-oss-120b's model.safetensors.index.json; the experts alone are in MXFP4."""
    spec = build(GPT_OSS, hidden_act="silu", attention_bias=True)
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    assert bytes_of(spec, {"quant_method": "mxfp4", "modules_to_not_convert": names}).bytes == 65_248_815_744


def test_bitsandbytes_leaves_stacked_experts_as_they_are() -> None:
    spec = build(GPT_OSS, num_hidden_layers=1, attention_bias=True)
    found = bytes_of(spec, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"})
    assert found.quantised_params == 2880 * 4096 * 2 + 2 * 2880 * 512


def test_names_that_a_module_may_have() -> None:
    block = next(block for block in build(LLAMA).blocks if block.role == "layer")
    assert "model.layers.2.mlp.up_proj" in module_names(block, 2, "mlp.up_proj")
