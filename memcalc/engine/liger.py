"""Liger's kernels: what they take the place of in the code of a model type, and what follows for a run.

Source: liger_kernel/transformers/monkey_patch.py of Liger-Kernel 0.8.5, the functions that it calls on the instance of a model, as transformers' Trainer
does (``_apply_liger_kernel_to_instance``), under transformers 5. Where classes are patched before a model is made, as axolotl and LLaMA-Factory do, the
norms of heads that are named here as staying (OLMo, Hunyuan, Mllama) are swapped, too.
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
BESIDE_EXPERTS = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
VERSION = "Liger-Kernel 0.8.5"
LLAMA = Liger(rope=True, rms_norm=True, mlp=True, fused_loss=True)
COPIES = replace(LLAMA, in_place=False)
LATENT = replace(LLAMA, rope=False, experts=True)

KERNELS: dict[str, Liger] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "falcon_h1"), LLAMA),
    **dict.fromkeys(("gemma2", "gemma3_text", "exaone4"), COPIES),
    **dict.fromkeys(("olmo2", "olmo3"), replace(COPIES, own=OF_HEADS)),
    **dict.fromkeys(("glm4", "qwen3_5_text"), replace(COPIES, rope=False)),
    "gemma4_text": replace(COPIES, rope=False, own=(*OF_INPUTS, *BESIDE_EXPERTS)),
    **dict.fromkeys(("mixtral", "qwen3_moe"), replace(LLAMA, mlp=False, experts=True)),
    "hunyuan_v1_dense": replace(LLAMA, own=OF_HEADS),
    "hunyuan_v1_moe": replace(LLAMA, own=OF_HEADS, mlp=False, experts=True),
    **dict.fromkeys(("qwen3_next", "qwen3_5_moe_text"), replace(COPIES, rope=False, experts=True)),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), LATENT),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "llama4_text"), replace(LLAMA, rope=False)),
    "qwen3_vl_text": replace(LLAMA, mlp=False),
    "qwen3_vl_moe_text": replace(LLAMA, mlp=False, experts=True),
    "glm4v_moe_text": replace(LATENT, own=OF_HEADS),
    "mllama_text_model": replace(LLAMA, own=OF_HEADS),
    "granite": replace(LLAMA, cross_entropy=True, fused_loss=False),
    "gpt_oss": replace(LLAMA, mlp=False, chunk=8),
    "nemotron": Liger(relu_squared=True, fused_loss=True),
}
"""By the model type of a text model, what is swapped where nothing is said."""

BESIDE_TOWERS = (
    *("llava", "internvl", "smolvlm", "paligemma", "gemma3", "gemma4", "mllama", "llama4"),
    *("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v", "glm4v_moe"),
)
"""Model types with a tower whose text model gets its kernels, and which have the fused loss."""


TOWERS: dict[str, Liger] = {
    **dict.fromkeys(("gemma3", "paligemma"), Liger(layer_norm=True, rms_norm=True, in_place=False)),
    "internvl": Liger(layer_norm=True, own_layer_norms=("layer_norm",), rms_norm=True, own=("layernorm_before", "layernorm_after")),
    **dict.fromkeys(("mllama", "llama4"), Liger(layer_norm=True)),
    "qwen2_vl": Liger(layer_norm=True, own_layer_norms=("ln_q",)),
    "qwen2_5_vl": Liger(rms_norm=True, own=("ln_q",)),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe"), Liger(rope=True)),
    "glm4v": Liger(rms_norm=True, mlp=True, own=("post_conv_layernorm", "post_layernorm")),
    "glm4v_moe": Liger(rms_norm=True, mlp=True),
}
"""By the model type of the whole, what is swapped in its tower and its projector."""


def swaps_of(model: ModelSpec) -> Liger | None:
    """What is swapped in a model's code where nothing is said; None: nothing."""
    found = KERNELS.get(model.text_type or model.model_type)
    if found is not None and model.active_params is not None and "gemma4" in model.model_type:
        found = replace(found, mlp=False)  # beside experts the network stays as it is
    if not model.text_type:
        return found
    return replace(found or NO_KERNELS, fused_loss=True) if model.model_type in BESIDE_TOWERS else None


def kernels_of(run: Run, model: ModelSpec, *, tower: bool = False) -> Liger:
    """Which kernels run, in the text model or in the tower: those of the model type, without what is switched off."""
    asked, found = run.liger, TOWERS.get(model.model_type) if tower else swaps_of(model)
    if asked is None or found is None:
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
    if swaps_of(model) is None:
        return (f"liger: {VERSION} has no kernels for {model.model_type}, or memcalc does not know them: its own modules are counted",)
    kernels = kernels_of(run, model)
    has = {
        **{name: getattr(kernels, name) for name in ("rope", "rms_norm", "layer_norm", "relu_squared", "cross_entropy")},
        **dict.fromkeys(("swiglu", "geglu"), kernels.mlp or kernels.experts),
        "fused_linear_cross_entropy": kernels.fused_loss,
    }
    return tuple(f"liger.{name}: {VERSION} has none for {model.model_type}" for name, there in has.items() if getattr(run.liger, name) and not there)


__all__ = ["ignored_by_liger", "kernels_of", "swaps_of", "with_liger"]
