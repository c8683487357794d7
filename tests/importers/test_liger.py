"""Liger's kernels in the words of frameworks."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.importers import import_files, import_text

SFT = ("accelerate", "launch", "train.py", "--model_name_or_path", "m", "--per_device_train_batch_size", "1")
AXOLOTL = "base_model: m\nmicro_batch_size: 1\n"
OFF = dict.fromkeys(("rope", "rms_norm", "layer_norm", "swiglu", "geglu", "relu_squared", "cross_entropy", "fused_linear_cross_entropy"), False)


@pytest.mark.parametrize(
    ("words", "liger", "loss"),
    [
        ((*SFT, "--use_liger_kernel", "True"), {}, None),
        ((*SFT, "--use_liger_kernel", "True", "--max_length", "64"), {}, None),
        ((*SFT, "--use_liger_kernel", "False", "--liger_kernel_config", '{"rope": false}'), None, None),
        ((*SFT, "--use_liger_kernel", "--liger_kernel_config", '{"rope": false, "swiglu": true}'), {"rope": False, "swiglu": True}, None),
        ((*SFT, "--use_liger_kernel", "--use_peft", "--lora_target_modules", "lm_head"), {}, "cross_entropy"),
        ((*SFT, "--use_liger_kernel", "--beta", "0.1"), {}, "cross_entropy"),
    ],
)
def test_a_switch_and_which_of_them(words: tuple[str, ...], liger: Any, loss: str | None) -> None:
    """Their loss comes with them, before TRL's own by default, and not where memcalc cannot count it."""
    found = import_files([], command=words).layer.data
    assert (found.get("liger"), found.get("loss")) == (liger, loss)


@pytest.mark.parametrize(
    ("text", "liger", "loss"),
    [
        (AXOLOTL + "plugins: [axolotl.integrations.liger.LigerPlugin]\n", None, None),
        (
            AXOLOTL + "liger_rope: true\nliger_glu_activation: true\ncut_cross_entropy: true\n",
            OFF | {"rope": True, "swiglu": True, "geglu": True},
            "cut_cross_entropy",
        ),
        (AXOLOTL + "liger_fused_linear_cross_entropy: true\n", OFF | {"fused_linear_cross_entropy": True}, "fused_linear"),
        ("model_name_or_path: m\nstage: sft\ntemplate: qwen\nfinetuning_type: full\nenable_liger_kernel: true\n", {}, None),
        ("model: {partial_pretrain: m, use_liger: true}\n", {"fused_linear_cross_entropy": False}, None),
    ],
)
def test_files(text: str, liger: Any, loss: str | None) -> None:
    """axolotl wants each by its name; verl gives the model no labels, so that its loss is not Liger's."""
    found = import_text(text).layer.data
    assert (found.get("liger"), found.get("loss")) == (liger, loss)


def test_what_is_not_counted_is_listed() -> None:
    found = import_files([], command=(*SFT, "--use_liger_kernel", "--liger_kernel_config", '{"wings": true}', "--beta", "0.1"))
    assert any("liger_kernel_config.wings" in line for line in found.unused)
    assert any("a fused_linear loss of task dpo is not counted" in line for line in found.unused)
