"""Which matrices have their gradients added to the buffers by the product itself.

For each distinct shape of them Transformer Engine keeps one tensor that is handed to autograd in the gradient's place, for good
(transformer_engine/pytorch/module/base.py, get_dummy_wgrad).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memcalc.components import MLP, Attention, GatedMLP, Head, Linear
from memcalc.components.lora import LoraLinear
from memcalc.components.moe import GroupedAdapter
from memcalc.specs.model import Component, Degrees

Shape = tuple[Any, Any]


def adapter_shapes(module: Component, degrees: Degrees) -> Iterator[Shape]:
    """(rows, columns) of each factor of the adapters below a component, beside which all is frozen."""
    if isinstance(module, LoraLinear):
        yield from (_matrix(factor, degrees) for factor in (module.lora_A, module.lora_B))
    if isinstance(module, GroupedAdapter):
        yield from ((rows.size, columns.size) for _, rows, columns in (weight.local(degrees) for weight in module.own_weights()))
    for _, child in module.children():
        yield from adapter_shapes(child, degrees)


def shapes(module: Component, degrees: Degrees) -> Iterator[Shape]:
    """(rows, columns) of each product's weight below a component; those that stand side by side in one product count as one."""
    together: list[Component | None] = []
    if isinstance(module, Attention):
        together = [module.q, module.k, module.v]
    elif isinstance(module, GatedMLP):
        together = [module.gate, module.up]
    elif not isinstance(module, (MLP, Head)):
        yield from _own(module, degrees)
    joined = [m for m in together if isinstance(m, Linear)]
    if joined:
        parts = [_matrix(m, degrees) for m in joined]
        yield sum(rows for rows, _ in parts), parts[0][1]
    for _, child in module.children():
        if child not in joined:
            yield from shapes(child, degrees)


def _own(module: Component, degrees: Degrees) -> Iterator[Shape]:
    if isinstance(module, Linear):
        yield _matrix(module, degrees)
        return
    for weight in module.own_weights():
        if weight.is_expert and len(weight.shape) == 3 and not weight.frozen:
            _, rows, columns = weight.local(degrees)
            yield rows.size, columns.size


def _matrix(linear: Linear, degrees: Degrees) -> Shape:
    weight = next(linear.own_weights())
    rows, columns = weight.local(degrees)
    return rows.size, columns.size
