"""Kernels for adapters: what they need, and where they find nothing to replace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcalc.components import Attention, GatedMLP
from memcalc.components.lora import LoraLinear
from memcalc.engine.settings import components
from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.specs.model import Component, ModelSpec

LAYERS = {
    "mlp": (GatedMLP, ("gate", "up", "down")),
    "qkv": (Attention, ("q", "k", "v")),
    "o": (Attention, ("o",)),
}
"""By kernel: of which component, which layers need adapters, all of them (axolotl 0.19, monkeypatch/lora_kernels.py, ``apply_lora_kernel_patches``)."""


def refuse_lora_kernels(run: Run) -> None:
    """Say no to kernels that there are none of, or whose modules do not run.

    Raises:
        UnknownNameError: no such kernel.
        InputError: other modules than transformers'.
    """
    for name in (run.lora.kernels or ()) if run.lora is not None else ():
        if name not in LAYERS:
            raise UnknownNameError("kernel", name, LAYERS, where="lora.kernels")
        if run.code != "transformers":
            raise InputError("these kernels are for transformers' modules", where="lora.kernels")


def ignored_lora_kernels(run: Run, model: ModelSpec, *, engine: str, zero: int) -> tuple[str, ...]:
    """Kernels that no layer of the model has its adapters for, or that would find weights in pieces."""
    asked = (run.lora.kernels or ()) if run.lora is not None else ()
    if asked and engine == "deepspeed" and zero == 3:
        return ("lora.kernels: stage 3 gathers weights as their modules are called, which these kernels go past; PEFT's modules are counted",)
    parts = [part for block in model.blocks for part in components(block.module)] if asked else []
    return tuple(f"lora.kernels {name}: no {' '.join(LAYERS[name][1])} of {model.model_type} all have adapters" for name in asked if not _finds(name, parts))


def _finds(name: str, parts: list[Component]) -> bool:
    kind, layers = LAYERS[name]
    return any(isinstance(part, kind) and all(isinstance(getattr(part, layer), LoraLinear) for layer in layers) for part in parts)


__all__ = ["ignored_lora_kernels", "refuse_lora_kernels"]
