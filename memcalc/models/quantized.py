"""A model whose linear layers are stored quantised as it is loaded, as bitsandbytes and others do."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

from memcalc.components import Head, Linear, MaskedHead
from memcalc.components.quantized import Kernel, QuantizedLinear
from memcalc.errors import UnknownNameError
from memcalc.specs.model import Component, ModelSpec
from memcalc.specs.quantization import Scheme

C = TypeVar("C", bound=Component)


class Loading(NamedTuple):
    """How a name of the run key ``quantization`` stores weights.

    Attributes:
        scheme: of each weight.
        kernel: whose product.
        trainable: adapters can be trained on top; otherwise transformers brings the weights back first.
    """

    scheme: Scheme
    kernel: Kernel = "other"
    trainable: bool = True


_FOUR = Scheme("nf4", 4, group=64)
_DOUBLE = Scheme("nf4", 4, group=64, double_quant=True)
LOADINGS: dict[str, Loading] = {
    "nf4": Loading(_FOUR, "4-bit"),
    "nf4-dq": Loading(_DOUBLE, "4-bit"),
    "fp4": Loading(_FOUR, "4-bit"),
    "fp4-dq": Loading(_DOUBLE, "4-bit"),
    "int8": Loading(Scheme("int8", 8), "8-bit"),
    "gptq": Loading(Scheme("gptq", 4, has_order=True)),
    "gptq-int8": Loading(Scheme("gptq", 8, has_order=True)),
    "awq": Loading(Scheme("awq", 4, zero_point=True)),
    "hqq": Loading(Scheme("affine", 4, group=64)),
    "fp8": Loading(Scheme("fp8_block", 8, scale_width=4), trainable=False),
    "mxfp4": Loading(Scheme("mxfp4", 4, group=32), trainable=False),
}
"""The names that the run key takes."""
KEPT = ("dt_proj",)
"""Linear layers whose weights the model's code takes directly, so that they cannot be stored otherwise."""


def loading(name: str) -> Loading:
    """How a name stores weights.

    Raises:
        UnknownNameError: it is not known; the message names the near ones.
    """
    if name not in LOADINGS:
        raise UnknownNameError("quantization", name, LOADINGS, where="quantization")
    return LOADINGS[name]


def quantise(model: ModelSpec, name: str, *, compute: str) -> ModelSpec:
    """The same model with every linear layer quantised but those of the output head; tables, norms and routers stay.

    Args:
        model: as its config.json has it.
        name: a value of the run key.
        compute: the dtype that weights are brought back to.

    Raises:
        UnknownNameError: no such name.
    """
    how = loading(name)
    blocks = tuple(block if block.role == "head" else replace(block, module=_inside(block.module, how, compute)) for block in model.blocks)
    return replace(model, blocks=blocks)


def _inside(module: C, how: Loading, compute: str) -> C:
    changed: dict[str, Any] = {}
    for field in fields(module):
        value = getattr(module, field.name)
        if isinstance(value, tuple) and any(isinstance(item, Component) for item in value):
            changed[field.name] = tuple(_one(item, how, compute) if isinstance(item, Component) else item for item in value)
        elif isinstance(value, Component):
            changed[field.name] = _one(value, how, compute)
    return replace(module, **changed) if changed else module


def _one(value: Component, how: Loading, compute: str) -> Component:
    if isinstance(value, (Head, MaskedHead)):
        return value
    if not isinstance(value, Linear):
        return _inside(value, how, compute)
    if value.name in KEPT:
        return value
    return QuantizedLinear(value.name, value.inputs, value.outputs, value.bias, value.split, value.dtype, how.scheme, compute, how.kernel)
