"""A model with adapters: the same tree, with the targeted linear layers wrapped."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from memcalc.components import Head, Linear
from memcalc.components.lora import LoraLinear
from memcalc.errors import UnknownNameError
from memcalc.specs.model import Axis, Component, ModelSpec
from memcalc.specs.run import LoraSpec

C = TypeVar("C", bound=Component)


def adapt(model: ModelSpec, lora: LoraSpec) -> ModelSpec:
    """Wrap every linear layer that ``target_modules`` names; the output head only when it is named.

    Raises:
        UnknownNameError: a name that no linear layer of the model has.
    """
    names = {m.name for block in model.blocks for _, m in linears(block.module)}
    wanted = targets(lora, names)
    blocks = tuple(
        replace(block, module=wrap(block.module, f"{block.path}/", lora, wanted))
        if not (lora.target_modules == "all-linear" and block.role == "head")
        else block
        for block in model.blocks
    )
    return replace(model, blocks=blocks)


def targets(lora: LoraSpec, names: set[str]) -> Callable[[str, str], bool]:
    """Whether a linear layer, by its name and dotted path, is targeted (PEFT: inject_adapter, check_target_module_exists)."""
    return named(lora.target_modules, names, where="lora.target_modules")


def named(wanted: str | tuple[str, ...], names: set[str], *, where: str) -> Callable[[str, str], bool]:
    """Whether a linear layer, by its name and dotted path, is among those wanted: names, one regular expression of paths, or all-linear.

    Raises:
        UnknownNameError: a name that is not among `names`.
    """
    if wanted == "all-linear":
        return lambda _name, _path: True
    if isinstance(wanted, str):
        pattern = re.compile(wanted)
        return lambda _name, path: pattern.fullmatch(path) is not None
    for name in wanted:
        if name.rsplit(".", 1)[-1] not in names:
            raise UnknownNameError("target module", name, names, where=where)
    return lambda _name, path: any(path == w or path.endswith(f".{w}") for w in wanted)


def linears(module: Component, prefix: str = "") -> list[tuple[str, Linear]]:
    """Slash path and component of every linear layer below."""
    if isinstance(module, Linear):
        return [(prefix.rstrip("/"), module)]
    return [found for name, child in module.children() for found in linears(child, f"{prefix}{name}/")]


def wrap(module: C, prefix: str, lora: LoraSpec, wanted: Callable[[str, str], bool]) -> C:
    """A component with its targeted linear layers wrapped, at any depth."""
    changed: dict[str, Any] = {}
    for field in fields(module):
        value = getattr(module, field.name)
        if isinstance(value, Linear):
            path = f"{prefix}{value.name}".replace("/", ".")
            if wanted(value.name, path):
                changed[field.name] = wrapped(value, lora)
        elif isinstance(value, Component) and not isinstance(value, Head):
            changed[field.name] = wrap(value, f"{prefix}{value.module_name or field.name}/", lora, wanted)
        elif isinstance(value, tuple) and any(isinstance(item, Component) for item in value):
            changed[field.name] = tuple(
                wrap(item, f"{prefix}{field.name}/{i}/", lora, wanted) if isinstance(item, Component) else item for i, item in enumerate(value)
            )
    return replace(module, **changed) if changed else module


def wrapped(linear: Linear, lora: LoraSpec) -> LoraLinear:
    """One linear layer with its adapter."""
    rank = Axis("r", lora.r)
    a = Linear("lora_A/default", linear.inputs, rank, split="row" if linear.split == "row" else None, dtype=lora.dtype)
    b = Linear("lora_B/default", rank, linear.outputs, split="column" if linear.split == "column" else None, dtype=lora.dtype)
    return LoraLinear(linear, a, b, lora.dropout)


def is_adapter(path: str) -> bool:
    """Whether a weight's path is that of an adapter."""
    return "/lora_A/" in path or "/lora_B/" in path
