"""Liger's kernels: what they take the place of in the code of a model type, and what follows for a run.

Source: liger_kernel/transformers/monkey_patch.py of Liger-Kernel 0.8.5, the functions that it calls on the instance of a model, as transformers' Trainer
does (``_apply_liger_kernel_to_instance``), under transformers 5. Patched before a model is made, as axolotl and LLaMA-Factory do, norms of heads are
among them in OLMo 2 and 3, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memcalc.code.liger import NO_KERNELS, Liger
from memcalc.errors import InputError
from memcalc.specs.run import LigerSpec, Run

if TYPE_CHECKING:
    from memcalc.specs.model import ModelSpec

OF_HEADS = ("q_norm", "k_norm")
OF_INPUTS = ("per_layer_projection_norm", "post_per_layer_input_norm")
VERSION = "Liger-Kernel 0.8.5"
LLAMA = Liger(rope=True, rms_norm=True, mlp=True, fused_loss=True)
COPIES = replace(LLAMA, in_place=False)
LATENT = replace(LLAMA, rope=False, experts=True)

KERNELS: dict[str, Liger] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "falcon_h1"), LLAMA),
    **dict.fromkeys(("gemma2", "gemma3_text", "exaone4"), COPIES),
    **dict.fromkeys(("olmo2", "olmo3"), replace(COPIES, own=OF_HEADS)),
    **dict.fromkeys(("glm4", "qwen3_5_text"), replace(COPIES, rope=False)),
    "gemma4_text": replace(COPIES, rope=False, own=OF_INPUTS),
    **dict.fromkeys(("mixtral", "qwen3_moe"), replace(LLAMA, mlp=False, experts=True)),
    "hunyuan_v1_dense": replace(LLAMA, own=OF_HEADS),
    "hunyuan_v1_moe": replace(LLAMA, own=OF_HEADS, mlp=False, experts=True),
    **dict.fromkeys(("qwen3_next", "qwen3_5_moe_text"), replace(COPIES, rope=False, experts=True)),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), LATENT),
    "granite": replace(LLAMA, cross_entropy=True, fused_loss=False),
    "gpt_oss": replace(LLAMA, mlp=False, chunk=8),
    "nemotron": Liger(relu_squared=True, fused_loss=True),
}
"""By model type, what is swapped where nothing is said."""


def kernels_of(run: Run, model: ModelSpec) -> Liger:
    """Which kernels run: those of the model type, without what is switched off."""
    asked, found = run.liger, KERNELS.get(model.model_type, NO_KERNELS)
    if asked is None:
        return NO_KERNELS
    gates = asked.swiglu is not False and asked.geglu is not False
    return replace(
        found,
        rope=found.rope and asked.rope is not False,
        rms_norm=found.rms_norm and asked.rms_norm is not False,
        layer_norm=found.layer_norm and asked.layer_norm is not False,
        mlp=found.mlp and gates,
        experts=found.experts and gates,
        relu_squared=found.relu_squared and asked.relu_squared is not False,
        cross_entropy=_takes_whole_logits(asked, found) and run.loss == "cross_entropy",
        fused_loss=found.fused_loss and asked.fused_linear_cross_entropy is not False,
    )


def _takes_whole_logits(asked: LigerSpec, found: Liger) -> bool:
    return found.cross_entropy if asked.cross_entropy is None else asked.cross_entropy


def with_liger(run: Run, model: ModelSpec) -> Run:
    """A run with Liger's kernels has its fused loss, too, unless another is named.

    Raises:
        InputError: modules that it does not replace, or kernels that exclude each other.
    """
    if run.liger is None:
        return run
    if run.code != "transformers" or run.task != "train":
        raise InputError("Liger's kernels are for training with transformers' modules", where="liger")
    kernels = kernels_of(run, model)
    if kernels.fused_loss and run.liger.cross_entropy:
        raise InputError("Liger takes one of cross_entropy and fused_linear_cross_entropy: set the other to false", where="liger.cross_entropy")
    return run if "loss" in run.model_fields_set or not kernels.fused_loss else run.model_copy(update={"loss": "fused_linear"})


def ignored_by_liger(run: Run, model: ModelSpec) -> tuple[str, ...]:
    """Kernels that were asked for, and that there are none of."""
    if run.liger is None:
        return ()
    if model.model_type not in KERNELS:
        return (f"liger: {VERSION} has no kernels for {model.model_type}, or memcalc does not know them: its own modules are counted",)
    kernels = kernels_of(run, model)
    has = {
        **{name: getattr(kernels, name) for name in ("rope", "rms_norm", "layer_norm", "relu_squared", "cross_entropy")},
        **dict.fromkeys(("swiglu", "geglu"), kernels.mlp or kernels.experts),
        "fused_linear_cross_entropy": kernels.fused_loss,
    }
    return tuple(f"liger.{name}: {VERSION} has none for {model.model_type}" for name, there in has.items() if getattr(run.liger, name) and not there)


__all__ = ["KERNELS", "ignored_by_liger", "kernels_of", "with_liger"]
