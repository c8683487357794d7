"""Adapters: PEFT's lora.Linear around a linear layer."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.linear import linear
from memcalc.components import Linear
from memcalc.components.lora import LoraLinear, SavedLinear
from memcalc.components.quantized import QuantizedLinear
from memcalc.tape import functional as F
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Shape, Tensor


@runs(LoraLinear)
def lora_linear(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out) (peft/tuners/lora/layer.py, Linear.forward).

    The frozen layer saves nothing. The adapter saves its input in its own dtype (an fp32 copy of a bf16 activation, one for each
    adapted layer) and the r-wide activation; the sum is made in the wider dtype and cast back.
    """
    if m.dora:
        return with_magnitudes(ctx, m, x)
    if isinstance(m.base_layer, QuantizedLinear):
        return quantized(ctx, m, m.base_layer, x)
    result = ctx.run(m.base_layer, x, "base_layer")
    x = F.cast(x, ctx.computes_in(m.lora_A.dtype), "input in the adapter's dtype")
    update = updated(ctx, m, x)
    out_dtype = result.dtype
    result = F.add(result, update, "with update")
    del update
    return F.cast(result, out_dtype, "output")


def updated(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """``B(A(dropout(x)))``, scaled."""
    return F.scale(ctx.run(m.lora_B, ctx.run(m.lora_A, dropout(ctx, x, m.dropout))), "update")


def quantized(ctx: Context, m: LoraLinear, base: QuantizedLinear, x: Tensor) -> Tensor:
    """On a quantised layer (peft/tuners/lora/bnb.py, Linear4bit.forward, Linear8bitLt.forward).

    A 4-bit result is copied. Under autocast the input is not cast to the adapter's dtype; without, the update is cast before the sum.
    """
    result = ctx.run(base, x, "base_layer")
    if base.kernel == "4-bit":
        result = F.clone(result, "defensive copy")
    if ctx.tape.autocast is not None:
        return F.add(result, updated(ctx, m, x), "output")
    x = F.cast(x, ctx.computes_in(m.lora_A.dtype), "input in the adapter's dtype")
    update = updated(ctx, m, x)
    return F.add(result, F.cast(update, result.dtype, "update cast"), "output")


def with_magnitudes(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """DoRA (peft/tuners/lora/dora.py, DoraLinearLayer.forward): the merged weight is made in full for the norms of its rows, which take no gradient.

    What makes it, the identity through both factors, is recorded all the same, and goes when the layer is through.
    """
    base, tape = m.base_layer, ctx.tape
    result = ctx.run(base, x, "base_layer")
    if isinstance(base, QuantizedLinear) and base.kernel == "4-bit":
        result = F.clone(result, "defensive copy")
    out_dtype = result.dtype
    x = dropout(ctx, F.cast(x, ctx.computes_in(m.lora_A.dtype), "input in the adapter's dtype"), m.dropout)
    begin = len(tape.nodes)
    identity = tape.new((Axis("identity", base.inputs.size), base.inputs), x.dtype, "identity")
    merged = ctx.run(m.lora_B, ctx.run(m.lora_A, identity))
    del identity
    merged = F.cast(merged, x.dtype, "product of factors cast")
    unused, tape.nodes[begin:] = tape.nodes[begin:], []
    weight = base_weight(ctx, base, x.dtype)
    norm = norms_of_rows(tape, (base.outputs, base.inputs), merged.dtype)
    magnitude = quotient(ctx.parameter(next(m.own_weights())), norm)
    update = ctx.run(m.lora_B, ctx.run(m.lora_A, x))
    again = F.linear(x, weight, None, base.outputs, "base layer once more") if m.dropout and ctx.settings.records else result
    change = F.mul(again, F.add_scalar(magnitude, "magnitude - 1"), "base times change")
    times = F.mul(update, magnitude, "update times magnitude")
    times = F.scale(times, "scaled update")
    change = F.add(change, times, "change")
    del again, update, times, merged, weight, unused
    result = F.add(result, change, "with change")
    del change
    return F.cast(result, out_dtype, "output")


def base_weight(ctx: Context, base: Linear, dtype: str) -> Tensor:
    """The frozen weight in a dtype: itself, or a copy (dequantize_module_weight)."""
    if isinstance(base, QuantizedLinear):
        return F.cast(ctx.tape.new((base.outputs, base.inputs), base.compute, "dequantised weight"), dtype, "weight cast")
    with ctx.inside("base_layer"):
        return F.cast(ctx.parameter(next(base.own_weights())), dtype, "weight cast")


def norms_of_rows(tape: Tape, whole: Shape, dtype: str) -> Tensor:
    """Of base and scaled product of factors, summed."""
    scaled = tape.new(whole, dtype, "scaled product of factors")
    merged = tape.new(whole, dtype, "merged weight")
    del scaled
    norm = tape.new(whole[:1], dtype, "norms of rows")
    del merged
    return norm


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """``x / y`` where y takes no gradient. Saves y."""
    out = F.like(x, "magnitude / norm")
    x.tape.record(out, (x,), (y,), lambda wants, g, y: (F.like(y, "gradient of quotient"),))
    return out


@runs(SavedLinear)
def saved_linear(ctx: Context, m: SavedLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out), by the copy that is trained."""
    return linear(ctx, m, x)
