"""Tensor and sequence parallelism: column- and row-parallel products, and the collectives around them.

Sources: transformer_engine/pytorch/module/linear.py and layernorm_linear.py; megatron/core/tensor_parallel/layers.py
(LinearWithGradAccumulationAndAsyncCommunication) and mappings.py; Korthikanti et al. 2022, section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.code.context import Context
from memcalc.code.fp8 import LOW_GRADIENT, kept_input, pair
from memcalc.code.megatron.options import options
from memcalc.components import Linear
from memcalc.errors import InputError
from memcalc.specs.model import Axis, Component, shard
from memcalc.tape.tensor import Shape, Tensor


def is_split(ctx: Context) -> bool:
    """Whether the sequence is cut between tensor-parallel regions."""
    return ctx.settings.sp and ctx.has_tp


def local_seq(ctx: Context) -> Axis:
    """The sequence outside tensor-parallel regions: cut under sequence parallelism."""
    return shard(ctx.seq, ctx.settings.tp) if is_split(ctx) else ctx.seq


def whole(ctx: Context, x: Tensor) -> Shape:
    """The shape of x with the whole sequence."""
    return (ctx.seq, *x.shape[1:])


def parameters(ctx: Context, m: Component) -> list[Tensor]:
    """Weight, and bias where there is one, of a linear layer that runs as a part of another module.

    Raises:
        InputError: it is something else, such as a layer with an adapter.
    """
    if not isinstance(m, Linear):
        raise InputError(f"code: megatron has no program for {type(m).__name__}; use code: transformers", where="code")
    with ctx.inside(m.name):
        return [ctx.parameter(weight) for weight in m.own_weights()]


def column(ctx: Context, x: Tensor, params: Sequence[Tensor], out: Axis, name: str) -> Tensor:
    """A product whose outputs are cut. Saves its own part of x where a weight takes a gradient.

    The gathered sequence is there while the product runs, and again in backward.

    Args:
        ctx: of the run.
        x: (sequence, batch, in), cut along the sequence under sequence parallelism.
        params: weights and biases that stand side by side in one product.
        out: the new last axis, as this rank has it.
        name: of the result.
    """
    tape, gathers, fp8 = ctx.tape, is_split(ctx), options(ctx).fp8
    read, kept_x = kept_input(x, params, fp8=fp8)
    total = tape.new(whole(ctx, x), read.dtype, f"gathered input of {name}") if gathers else read
    y = tape.new((ctx.seq if gathers else x.shape[0], *x.shape[1:-1], out), x.dtype, name)
    part, full, dtype, low = x.shape, total.shape, x.dtype, read.dtype
    del total, read
    fused = options(ctx).fused_wgrad

    def backward(wants: tuple[bool, ...], g: Tensor, *kept: Tensor) -> tuple[Tensor | None, ...]:
        again = [tape.new(full, low, f"gathered input of {name}")] if gathers and any(wants[1:]) else []
        again += pair(g, f"gradient of {name}", LOW_GRADIENT) if fp8 else []
        of_total = tape.new(full, dtype, f"gradient of gathered input of {name}") if wants[0] else None
        of_x = tape.new(part, dtype, f"gradient of input of {name}") if gathers and wants[0] else of_total
        grads = gradients(params, wants[1:], fused=fused)
        del again
        return (of_x, *grads)

    tape.record(y, (x, *params), saved(kept_x, params), backward)
    return y


def row(ctx: Context, x: Tensor, params: Sequence[Tensor], out: Axis, name: str) -> Tensor:
    """A product whose inputs are cut: partial sums are all-reduced in place, or reduced and scattered along the sequence. Saves x likewise.

    Args:
        ctx: of the run.
        x: (sequence, batch, in / tp).
        params: weight and bias; the bias is added later, with the residual.
        out: the new last axis.
        name: of the result.
    """
    tape, scatters, fp8 = ctx.tape, is_split(ctx), options(ctx).fp8
    read, kept_x = kept_input(x, params, fp8=fp8)
    y = tape.new((*x.shape[:-1], out), x.dtype, f"partial {name}" if scatters else name)
    full = y.shape
    if scatters:
        y = tape.new((local_seq(ctx), *x.shape[1:-1], out), x.dtype, name)
    fused, dtype, shape = options(ctx).fused_wgrad, x.dtype, x.shape

    def backward(wants: tuple[bool, ...], g: Tensor, *kept: Tensor) -> tuple[Tensor | None, ...]:
        total = tape.new(full, dtype, f"gathered gradient of {name}") if scatters else g
        low = pair(total, f"gradient of {name}", LOW_GRADIENT) if fp8 else []
        of_x = tape.new(shape, dtype, f"gradient of input of {name}") if wants[0] else None
        grads = gradients(params, wants[1:], fused=fused)
        del total, low
        return (of_x, *grads)

    del read
    tape.record(y, (x, *params), saved(kept_x, params), backward)
    return y


def plain(ctx: Context, x: Tensor, params: Sequence[Tensor], out: Axis, name: str) -> Tensor:
    """A product that every tensor-parallel rank computes whole, on its own part of the sequence. Saves x likewise."""
    tape, fp8 = ctx.tape, options(ctx).fp8
    read, kept_x = kept_input(x, params, fp8=fp8)
    y = tape.new((*x.shape[:-1], out), x.dtype, name)
    fused, dtype, shape = options(ctx).fused_wgrad, x.dtype, x.shape
    del read

    def backward(wants: tuple[bool, ...], g: Tensor, *kept: Tensor) -> tuple[Tensor | None, ...]:
        low = pair(g, f"gradient of {name}", LOW_GRADIENT) if fp8 else []
        of_x = tape.new(shape, dtype, f"gradient of input of {name}") if wants[0] else None
        grads = gradients(params, wants[1:], fused=fused)
        del low
        return (of_x, *grads)

    tape.record(y, (x, *params), saved(kept_x, params), backward)
    return y


def saved(x: Tensor, params: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What a product keeps: its weights, and its input where one of them takes a gradient."""
    return (x, *params) if any(p.requires_grad for p in params) else tuple(params)


def gradients(params: Sequence[Tensor], wants: Sequence[bool], *, fused: bool) -> list[Tensor | None]:
    """Gradients of weights and biases; fused ones of matrices go straight into their buffers."""
    made: list[Tensor | None] = []
    for param, wanted in zip(params, wants, strict=True):
        into_buffer = fused and len(param.shape) > 1
        made.append(param.tape.new(param.shape, param.dtype, "gradient of weight") if wanted and not into_buffer else None)
    return made


def gather_sequence(ctx: Context, x: Tensor, name: str) -> Tensor:
    """The whole sequence on every tensor-parallel rank; its gradient is reduced and scattered (gather_from_sequence_parallel_region)."""
    if not is_split(ctx):
        return x
    y, part = ctx.tape.new(whole(ctx, x), x.dtype, name), x.shape
    ctx.tape.record(y, (x,), (), lambda wants, g: (g.tape.new(part, g.dtype, f"gradient of {name}"),))
    return y


def scatter_sum(ctx: Context, x: Tensor, name: str) -> Tensor:
    """Partial sums of the whole sequence, reduced and scattered; its gradient is gathered (reduce_scatter_to_sequence_parallel_region)."""
    y, full = ctx.tape.new((local_seq(ctx), *x.shape[1:]), x.dtype, name), x.shape
    ctx.tape.record(y, (x,), (), lambda wants, g: (g.tape.new(full, g.dtype, f"gathered gradient of {name}"),))
    return y
