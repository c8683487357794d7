"""Adapters beside column- and row-parallel products; what stands in one product has one adapter.

Source: ms-swift 3.9, swift/megatron/tuners/lora.py (LoraParallelLinear); Megatron-Bridge, peft/lora_layers.py (LoRALinear) computes the same.
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

    The adapter reads the whole sequence: under sequence parallelism it is gathered, and its first factor saves it.

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
            whole = parallel.gather_sequence(ctx, x, "gathered input of the adapter")
            result = F.add(result, updated(ctx, adapter, whole, out), f"{name} with update")
    if x is ctx.passing:
        ctx.passing = None
        if not ctx.tape.grad_enabled and x.storage is not None:
            x.storage.drop()
    return result


def row(ctx: Context, x: Tensor, linear: Linear | LoraLinear, name: str) -> Tensor:
    """A product whose inputs are cut, with its adapter: the second factor's output is whole until its part of the sequence is cut out.

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
        update = updated(ctx, linear, x, out)
        if parallel.is_split(ctx):
            update = scattered(ctx, update)
        return F.add(result, update, f"{name} with update")


def plain(ctx: Context, x: Tensor, linear: Linear | LoraLinear, name: str) -> Tensor:
    """A product that every rank computes whole on its part of the sequence, with its adapter, which does likewise."""
    out = linear.outputs
    result = parallel.plain(ctx, x, base_parameters(ctx, linear), out, name)
    if not isinstance(linear, LoraLinear):
        return result
    with ctx.inside(linear.module_name):
        return F.add(result, updated(ctx, linear, x, out), f"{name} with update")


def updated(ctx: Context, m: LoraLinear, x: Tensor, out: Axis) -> Tensor:
    """``B(A(dropout(x)))``, scaled, as this rank has it."""
    x = dropout(ctx, x, m.dropout)
    low = parallel.plain(ctx, x, parallel.parameters(ctx, m.lora_A), m.lora_A.outputs, "low-rank")
    return F.scale(parallel.plain(ctx, low, parallel.parameters(ctx, m.lora_B), out, "product of factors"), "update")


def scattered(ctx: Context, x: Tensor) -> Tensor:
    """This rank's part of the sequence; its gradient is gathered (scatter_to_sequence_parallel_region)."""
    part, full = ctx.tape.new((parallel.local_seq(ctx), *x.shape[1:]), x.dtype, "part of update"), x.shape
    ctx.tape.record(part, (x,), (), lambda wants, g: (g.tape.new(full, g.dtype, "gathered gradient of update"),))
    return part


def base_parameters(ctx: Context, linear: Linear | LoraLinear) -> list[Tensor]:
    """Weight and bias of a layer, or of the one that an adapter stands around."""
    if not isinstance(linear, LoraLinear):
        return parallel.parameters(ctx, linear)
    with ctx.inside(linear.module_name):
        return parallel.parameters(ctx, linear.base_layer)
