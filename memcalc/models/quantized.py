"""A model whose linear layers are stored quantised as it is loaded, as bitsandbytes and others do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

from memcalc.components import Head, Linear, MaskedHead
from memcalc.components.quantized import Kernel, QuantizedLinear
from memcalc.errors import UnknownNameError
from memcalc.models.lora import linears
from memcalc.specs.model import Block, Component, ModelSpec
from memcalc.specs.quantization import Quantization, Scheme

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


def loading_of(stored: Quantization) -> str | None:
    """The name of `LOADINGS` under which a checkpoint is held as it is stored; None where its weights are brought back first, or there is no such name."""
    if stored.training != "adapters" or len(stored.rules) != 1:
        return None
    mine = stored.rules[0].scheme
    near = [name for name, (scheme, *_) in LOADINGS.items() if (scheme.kind, scheme.bits, scheme.double_quant) == (mine.kind, mine.bits, mine.double_quant)]
    return next((name for name in near if LOADINGS[name].trainable), None)


HEAD = "lm_head"


class Packing(NamedTuple):
    """What becomes of each linear layer.

    Attributes:
        how: it is stored.
        compute, held, keeps_input: see `QuantizedLinear`.
        skipped: names of those that stay.
    """

    how: Loading
    compute: str
    held: str | None = None
    keeps_input: bool = False
    skipped: tuple[str, ...] = (HEAD,)

    def packed(self, layer: Linear) -> QuantizedLinear:
        """The layer with its weight packed."""
        how, base = self.how, (layer.name, layer.inputs, layer.outputs, layer.bias, layer.split, layer.dtype)
        return QuantizedLinear(*base, how.scheme, self.compute, how.kernel, self.held, self.keeps_input)


def quantise(
    model: ModelSpec, name: str, *, compute: str, held: str | None = None, keeps_inputs: bool = False, skipped: Collection[str] | None = None
) -> ModelSpec:
    """The same model with its linear layers quantised, by default all but the output head; tables, norms and routers stay.

    Args:
        model: as its config.json has it.
        name: a value of the run key.
        compute: the dtype of products.
        held, keeps_inputs: see `QuantizedLinear`.
        skipped: names of linear layers that stay as they are.

    Raises:
        UnknownNameError: no such name, of a way to store weights or of a layer.
    """
    packing = Packing(loading(name), compute, held, keeps_inputs, (HEAD,) if skipped is None else tuple(skipped))
    if skipped:
        known = {HEAD, *(layer.name for block in model.blocks for _, layer in linears(block.module))}
        for unknown in [name for name in skipped if name not in known]:
            raise UnknownNameError("layer", unknown, sorted(known), where="llm_int8_skip_modules")
    return replace(model, blocks=tuple(block if _stays(block, packing) else replace(block, module=_inside(block.module, packing)) for block in model.blocks))


def _stays(block: Block, packing: Packing) -> bool:
    """A head that is skipped, or tied to the table, whose weight it shares."""
    return block.role == "head" and (HEAD in packing.skipped or getattr(block.module, "tied", False))


def _inside(module: C, packing: Packing) -> C:
    changed: dict[str, Any] = {}
    for field in fields(module):
        value = getattr(module, field.name)
        if isinstance(value, tuple) and any(isinstance(item, Component) for item in value):
            changed[field.name] = tuple(_one(item, packing) if isinstance(item, Component) else item for item in value)
        elif isinstance(value, Component):
            changed[field.name] = _one(value, packing)
    return replace(module, **changed) if changed else module


def _one(value: Component, packing: Packing) -> Component:
    if isinstance(value, (Head, MaskedHead)):
        return value
    if not isinstance(value, Linear):
        return _inside(value, packing)
    return value if value.name in KEPT or value.name in packing.skipped else packing.packed(value)
