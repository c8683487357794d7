"""torchtune's YAML by its recipes."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import Imported, import_text

FULL = """
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {max_seq_len: 1024}
optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit}
optimizer_in_bwd: True
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
batch_size: 2
dtype: bf16
"""
LORA = """
model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_attn_modules: [q_proj], apply_lora_to_output: True, lora_rank: 8}
optimizer: {_component_: torch.optim.AdamW, fused: True}
"""


def told(text: str, **flags: int) -> dict[str, Any]:
    """Keys and values."""
    return {origin.key: origin.value for origin in found(text, **flags).origins}


def found(text: str, **flags: int) -> Imported:
    """What a file says, beside flags."""
    return import_text(text, flags={f"hardware.{key}": value for key, value in flags.items()})


def test_steps_in_backward_are_counted_on_one_card() -> None:
    assert (told(FULL)["optimizer_in_backward"], told(FULL)["optimizer"], told(FULL)["seq_len"]) == (True, "paged_adamw_8bit", 1024)
    several = found(FULL, gpus=4)
    assert "optimizer_in_backward" not in {origin.key for origin in several.origins}
    assert any("optimizer_in_bwd on several cards" in line for line in several.unused)


def test_a_loss_or_a_teacher_says_the_task() -> None:
    assert told(LORA + "loss: {_component_: torchtune.rlhf.loss.DPOLoss}")["task"] == "dpo"
    student = told(LORA + "teacher_model: {_component_: torchtune.models.llama3_1.llama3_1_70b}\nkd_loss: {_component_: torchtune.modules.loss.ForwardKL}")
    assert (student["task"], student["roles.teacher.model"]) == ("distill", "llama-3.1-70b")


def test_its_own_modules_run_where_they_are_known() -> None:
    """Else transformers' stand for them, without the loss that only torchtune has."""
    assert (told(FULL)["code"], told(FULL)["loss"]) == ("torchtune", "linear_cross_entropy")
    gemma = FULL.replace("llama3_1.llama3_1_8b", "gemma2.gemma2_9b")
    assert told(gemma)["code"] == "torchtune"
    for other in (FULL + "tensor_parallel_dim: 2\n", gemma + "compile: true\n", FULL.replace("llama3_1.llama3_1_8b", "llama4.llama4_scout_17b_16e")):
        assert (told(other, gpus=4).get("code"), told(other, gpus=4)["loss"]) == (None, "chunked_output")


def test_the_head_may_have_an_adapter() -> None:
    assert told(LORA)["lora.target_modules"] == ["q_proj", "lm_head"]


def test_a_prompt_is_generation() -> None:
    generates = told("model: {_component_: torchtune.models.llama2.llama2_7b}\nprompt: {user: Hello}\nmax_new_tokens: 300\ndtype: bf16")
    assert (generates["task"], generates["new_tokens"], generates["micro_batch"]) == ("inference", 300, 1)
    assert "recompute" not in generates


@pytest.mark.parametrize("text", ["tasks: [truthfulqa_mc2]", "ppo_epochs: 1"])
def test_what_is_neither_training_nor_generation_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        found("model: {_component_: torchtune.models.llama2.llama2_7b}\n" + text)
