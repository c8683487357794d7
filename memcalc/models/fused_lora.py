"""Adapters as Megatron-Core's modules have them: one around each fused product, and in the model's dtype.

Source: mcore-bridge 1.6, tuners/lora.py (LoraParallelLinear); ms-swift 4.6, megatron/utils/utils.py; Megatron-Bridge, peft/lora.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from memcalc.components import MLP, Attention, GatedMLP, Linear
from memcalc.components.lora import LoraLinear
from memcalc.components.mla import LatentAttention
from memcalc.components.moe import Experts, GroupedAdapter
from memcalc.models.lora import adapt
from memcalc.specs.model import Axis, Component, ModelSpec
from memcalc.specs.run import LoraSpec

C = TypeVar("C", bound=Component)

PRODUCTS: dict[str, tuple[tuple[type[Component], tuple[str, ...]], ...]] = {
    "linear_qkv": ((Attention, ("q", "k", "v")),),
    "linear_proj": ((Attention, ("o",)), (LatentAttention, ("o_proj",))),
    "linear_fc1": ((GatedMLP, ("gate", "up")), (MLP, ("up",))),
    "linear_fc2": ((GatedMLP, ("down",)), (MLP, ("down",))),
    "linear_q_proj": ((LatentAttention, ("q_proj",)),),
    "linear_q_down_proj": ((LatentAttention, ("q_a_proj",)),),
    "linear_q_up_proj": ((LatentAttention, ("q_b_proj",)),),
    "linear_kv_down_proj": ((LatentAttention, ("kv_a_proj",)),),
    "linear_kv_up_proj": ((LatentAttention, ("kv_b_proj",)),),
}
"""Megatron-Core's names of products, and what of a component stands in each."""
EXPERTS = ("linear_fc1", "linear_fc2")
"""Products that routed experts have, too."""


def adapt_fused(model: ModelSpec, lora: LoraSpec) -> ModelSpec:
    """The model with an adapter around each product that ``target_modules`` names, by Megatron-Core's names or by those of layers in it.

    Raises:
        InputError, UnknownNameError: as `memcalc.models.lora.adapt`.
    """
    names = translated(model, lora.target_modules)
    experts = {product for product in EXPERTS if lora.target_modules == "all-linear" or product in lora.target_modules}
    found = adapt(model, lora.model_copy(update={"target_modules": names})) if names or not experts else model
    blocks = (replace(block, module=fused(with_experts(block.module, experts, lora))) for block in found.blocks)
    return replace(found, blocks=tuple(blocks))


def translated(model: ModelSpec, wanted: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Names of products as names of the layers in them; ``all-linear`` is every product, without routers and head."""
    if isinstance(wanted, str) and wanted != "all-linear":
        return wanted
    named: list[str] = []
    for name in PRODUCTS if wanted == "all-linear" else wanted:
        named += sorted({linear.name for linear in members(model, name)}) if name in PRODUCTS else [name]
    return tuple(dict.fromkeys(named))


def members(model: ModelSpec, product: str) -> Iterator[Linear]:
    """The layers of a model that stand in products of this name."""
    for block in model.blocks:
        for module in below(block.module):
            for kind, names in PRODUCTS[product]:
                if isinstance(module, kind):
                    yield from (linear for linear in (getattr(module, name) for name in names) if isinstance(linear, Linear))


def below(module: Component) -> Iterator[Component]:
    """A component and all that it is made of."""
    yield module
    for _, child in module.children():
        yield from below(child)


def with_experts(module: C, products: set[str], lora: LoraSpec) -> C:
    """A component whose experts have adapters of their own beside these products."""
    if not isinstance(module, Experts):
        return rebuilt(module, lambda child: with_experts(child, products, lora))
    rank, (up, down) = Axis("r", lora.r), (f"{module.first}_proj", "down_proj")
    first = GroupedAdapter(up, module.count, module.hidden, module.both, rank, "expert_column", lora.dropout)
    second = GroupedAdapter(down, module.count, module.intermediate, module.hidden, rank, "expert_row", lora.dropout)
    return replace(module, adapters=tuple(adapter for product, adapter in (("linear_fc1", first), ("linear_fc2", second)) if product in products))


def rebuilt(module: C, remake: Callable[[Any], Any]) -> C:
    """A component with each child made anew; linear layers stay."""
    changed: dict[str, Any] = {}
    for field in fields(module):
        value = getattr(module, field.name)
        if isinstance(value, Component) and not isinstance(value, (Linear, LoraLinear)):
            changed[field.name] = remake(value)
        elif isinstance(value, tuple) and any(isinstance(item, Component) for item in value):
            changed[field.name] = tuple(remake(item) if isinstance(item, Component) else item for item in value)
    return replace(module, **changed) if changed else module


def fused(module: C) -> C:
    """A component with one adapter to a product, at the first of the layers in it."""
    module, changed = rebuilt(module, fused), {}
    for kinds in PRODUCTS.values():
        for kind, names in kinds:
            if isinstance(module, kind):
                changed.update(_together(module, names))
    return replace(module, **changed) if changed else module


def _together(module: Component, names: tuple[str, ...]) -> dict[str, LoraLinear | Linear]:
    layers = {name: getattr(module, name) for name in names if getattr(module, name) is not None}
    adapter = next((layer for layer in layers.values() if isinstance(layer, LoraLinear)), None)
    if adapter is None:
        return {}
    bare = {name: layer.base_layer if isinstance(layer, LoraLinear) else layer for name, layer in layers.items()}
    first, *_ = bare
    out = Axis(" + ".join(layer.outputs.name for layer in bare.values()), sum(layer.outputs.size for layer in bare.values()))
    a, b = replace(adapter.lora_A, dtype=None), replace(adapter.lora_B, outputs=out, dtype=None)
    return {**bare, first: replace(adapter, base_layer=bare[first], lora_A=a, lora_B=b)}
