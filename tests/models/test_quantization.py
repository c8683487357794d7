"""``quantization_config`` as files have it."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.models.quantization import from_modelopt, read_quantization
from memcalc.specs.quantization import Module, Quantization, Scheme

UP, HEAD = Module(("model.layers.0.mlp.up_proj",)), Module(("lm_head",), "head")


def read(config: dict[str, Any]) -> Quantization:
    """What is made of it."""
    found = read_quantization({"quantization_config": config}, where="config.json")
    assert found is not None
    return found


CASES: list[tuple[dict[str, Any], str, Scheme]] = [
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
        "nf4 with double quantisation",
        Scheme("nf4", 4, group=64, double_quant=True),
    ),
    ({"_load_in_4bit": True, "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, "fp4", Scheme("nf4", 4, group=64)),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8 (LLM.int8)", Scheme("int8", 8)),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}, "gptq 4-bit", Scheme("gptq", 4, group=128, has_order=True)),
    (
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
        "awq 4-bit",
        Scheme("awq", 4, group=64, zero_point=True),
    ),
    (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
        "fp8 with a scale for each 128 × 128",
        Scheme("fp8_block", 8, block=(128, 128), scale_width=4),
    ),
    (
        {"quant_method": "fp8", "activation_scheme": "static"},
        "fp8 with a scale for each tensor",
        Scheme("scaled", 8, scale_width=4, input_scale=True),
    ),
    ({"quant_method": "fbgemm_fp8"}, "fp8 with a scale for each output", Scheme("scaled", 8, by_output=True, scale_width=4)),
    (
        from_modelopt({"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}),
        "nvfp4",
        Scheme("nvfp4", 4, group=16, input_scale=True),
    ),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, "fp8", Scheme("scaled", 8, scale_width=4, input_scale=True)),
    (
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": True}}},
        },
        "int4, packed",
        Scheme("packed", 4, group=128),
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "ignore": ["re:.*lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
        },
        "fp8 with a scale for each channel",
        Scheme("scaled", 8, by_output=True),
    ),
    (
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}, "skip_modules": ["lm_head"]},
        "hqq 4-bit",
        Scheme("affine", 4, group=64),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "name", "scheme"), CASES, ids=[name for _, name, _ in CASES])
def test_a_layer_is_stored_as_the_file_says_and_the_head_is_not(config: dict[str, Any], name: str, scheme: Scheme) -> None:
    found = read(config)
    assert found.name == name
    assert found.scheme_for(UP) == scheme
    assert found.scheme_for(HEAD) is None


def test_mxfp4_is_of_experts_alone() -> None:
    found = read({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})
    assert found.scheme_for(UP) is None
    assert found.scheme_for(Module(("model.layers.0.mlp.experts.gate_up_proj",), is_expert=True, is_stacked=True)) == Scheme("mxfp4", 4, group=32)


def test_wildcards_of_model_optimizer() -> None:
    found = read({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["model.layers.*.self_attn*", "lm_head"]})
    assert found.scheme_for(Module(("model.layers.7.self_attn.q_proj",))) is None
    assert found.scheme_for(UP) is not None


def test_whether_fine_tuning_dequantises_is_known() -> None:
    """transformers' quantizers say whether their weights can be trained beside (``is_trainable``)."""
    assert read({"quant_method": "gptq", "bits": 4}).training == "adapters"
    assert read({"quant_method": "mxfp4"}).training == "dequantised"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("int4", "quantization_config is 'int4'; an object was expected"),
        ({"quant_method": "gtpq", "bits": 4}, "unknown quant_method 'gtpq'; did you mean gptq"),
        ({"bits": 4}, "unknown quant_method 'None'"),
        ({"quant_method": "gptq", "bits": 5}, "bits is 5; gptq has 2, 3, 4 and 8"),
        ({"quant_method": "gptq", "bits": "4"}, "bits is '4'; an integer was expected"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes with neither load_in_4bit nor load_in_8bit"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size is 128; two numbers were expected"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors without config_groups"),
        ({"quant_method": "modelopt", "quant_algo": "W5A5"}, "unknown quant_algo 'W5A5'"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert is not a list of module names"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["(a+)+b"]}, r"'\(a\+\)\+b' is not a pattern of module names"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["x" * 500]}, "is not a pattern of module names"),
    ],
)
def test_what_is_not_known_is_said_in_one_line(config: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(config)
    assert "\n" not in str(caught.value)


def test_a_file_without_one_is_not_quantised() -> None:
    assert read_quantization({"model_type": "llama"}, where="config.json") is None
