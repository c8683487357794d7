"""What a configuration implies."""

from __future__ import annotations

from memcalc.specs.deepspeed_file import read_deepspeed


def test_gradients_are_in_the_dtype_of_the_weights_unless_another_is_asked_for() -> None:
    assert read_deepspeed({"bf16": {"enabled": True}}).gradient_dtype == "bfloat16"
    assert read_deepspeed({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}).gradient_dtype == "float32"


def test_master_weights_are_fp32_unless_they_are_to_be_kept_narrow() -> None:
    assert read_deepspeed({"bf16": {"enabled": True}}).master_dtype == "float32"
    assert read_deepspeed({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}).master_dtype == "bfloat16"


def test_gradients_travel_in_the_dtype_of_the_weights_unless_another_is_asked_for() -> None:
    assert read_deepspeed({"fp16": {"enabled": True}}).reduce_dtype == "float16"
    assert read_deepspeed({"fp16": {"enabled": True}, "communication_data_type": "fp32"}).reduce_dtype == "float32"


def test_deepspeed_makes_its_fused_adam_where_the_file_names_one_and_nothing_is_offloaded() -> None:
    adam = {"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}
    assert read_deepspeed(adam).builds_fused_adam
    assert not read_deepspeed({"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}).builds_fused_adam
    assert not read_deepspeed(adam | {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}).builds_fused_adam
    assert not read_deepspeed({}).builds_fused_adam
