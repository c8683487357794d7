"""Adapters beside column- and row-parallel products; what stands in one product has one adapter.

Source: mcore-bridge 1.6, tuners/lora.py (LoraParallelLinear), which ms-swift 4 has; Megatron-Bridge, peft/lora_layers.py (LoRALinear) computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.code.context import Context
from memcalc.code.megatron import parallel
from memcalc.code.transformers.dropout import dropout
from memcalc.components import Linear
from memcalc.components.lora import LoraLinear
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def column(ctx: Context, x: Tensor, linears: Sequence[Linear | LoraLinear], out: Axis, name: str) -> Tensor:
    """A product of several layers whose outputs are cut, with the adapter that one of them may have for all.

    The adapter's first factor stands whole on every rank and reads its own part of the sequence, the second is cut as the product is.

    Args:
        ctx: of the run.
        x: (sequence, batch, in), cut along the sequence under sequence parallelism.
        linears: linear layers that stand side by side in one product.
        out: the new last axis, as this rank has it.
        name: of the result.
    """
    result = parallel.column(ctx, x, [p for linear in linears for p in base_parameters(ctx, linear)], out, name)
    adapter = next((linear for linear in linears if isinstance(linear, LoraLinear)), None)
    if adapter is not None:
        with ctx.inside(adapter.module_name):
            low = parallel.plain(ctx, dropout(ctx, x, adapter.dropout), *first(ctx, adapter), "low-rank")
            update = parallel.column(ctx, low, parallel.parameters(ctx, adapter.lora_B), out, "product of factors")
            update = F.scale(update, "update")
            result = F.add(result, update, f"{name} with update")
            del low, update
    if x is ctx.passing:
        ctx.passing = None
        if not ctx.tape.grad_enabled and x.storage is not None:
            x.storage.drop()
    return result


def row(ctx: Context, x: Tensor, linear: Linear | LoraLinear, name: str) -> Tensor:
    """A product whose inputs are cut, with its adapter: the first factor is cut likewise, its few columns are summed, and the second is whole.

    Args:
        ctx: of the run.
        x: (sequence, batch, in / tp).
        linear: the layer.
        name: of the result.
    """
    out = linear.outputs
    result = parallel.row(ctx, x, base_parameters(ctx, linear), out, name)
    if not isinstance(linear, LoraLinear):
        return result
    with ctx.inside(linear.module_name):
        low = parallel.row(ctx, dropout(ctx, x, linear.dropout), *first(ctx, linear), "low-rank")
        update = parallel.plain(ctx, low, parallel.parameters(ctx, linear.lora_B), out, "product of factors")
        update = F.scale(update, "update")
        return F.add(result, update, f"{name} with update")


def plain(ctx: Context, x: Tensor, linear: Linear | LoraLinear, name: str) -> Tensor:
    """A product that every rank computes whole on its part of the sequence, with its adapter, which does likewise."""
    out = linear.outputs
    result = parallel.plain(ctx, x, base_parameters(ctx, linear), out, name)
    if not isinstance(linear, LoraLinear):
        return result
    with ctx.inside(linear.module_name):
        low = parallel.plain(ctx, dropout(ctx, x, linear.dropout), *first(ctx, linear), "low-rank")
        update = parallel.plain(ctx, low, parallel.parameters(ctx, linear.lora_B), out, "product of factors")
        update = F.scale(update, "update")
        return F.add(result, update, f"{name} with update")


def first(ctx: Context, m: LoraLinear) -> tuple[list[Tensor], Axis]:
    """The first factor and its width."""
    return parallel.parameters(ctx, m.lora_A), m.lora_A.outputs


def base_parameters(ctx: Context, linear: Linear | LoraLinear) -> list[Tensor]:
    """Weight and bias of a layer, or of the one that an adapter stands around."""
    if not isinstance(linear, LoraLinear):
        return parallel.parameters(ctx, linear)
    with ctx.inside(linear.module_name):
        return parallel.parameters(ctx, linear.base_layer)
