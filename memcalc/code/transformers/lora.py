"""Adapters: PEFT's lora.Linear around a linear layer."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.components.lora import LoraLinear
from memcalc.components.quantized import QuantizedLinear
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(LoraLinear)
def lora_linear(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out) (peft/tuners/lora/layer.py, Linear.forward).

    The frozen layer saves nothing. The adapter saves its input in its own dtype (an fp32 copy of a bf16 activation, one for each
    adapted layer) and the r-wide activation; the sum is made in the wider dtype and cast back.
    """
    if isinstance(m.base_layer, QuantizedLinear):
        return quantized(ctx, m, m.base_layer, x)
    result = ctx.run(m.base_layer, x, "base_layer")
    update = updated(ctx, m, F.cast(x, ctx.computes_in(m.lora_A.dtype), "input in the adapter's dtype"))
    out_dtype = result.dtype
    result = F.add(result, update, "with update")
    del update
    return F.cast(result, out_dtype, "output")


def updated(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """``B(A(dropout(x)))``, scaled."""
    x = dropout(ctx, x, m.dropout)
    return F.scale(ctx.run(m.lora_B, ctx.run(m.lora_A, x)), "update")


def quantized(ctx: Context, m: LoraLinear, base: QuantizedLinear, x: Tensor) -> Tensor:
    """On a quantised layer (peft/tuners/lora/bnb.py, Linear4bit.forward, Linear8bitLt.forward).

    A 4-bit result is copied. Under autocast the input is not cast to the adapter's dtype; without, the update is cast before the sum.
    """
    result = ctx.run(base, x, "base_layer")
    if base.kernel == "4-bit":
        result = F.clone(result, "defensive copy")
    if ctx.tape.autocast is not None:
        return F.add(result, updated(ctx, m, x), "output")
    update = updated(ctx, m, F.cast(x, ctx.computes_in(m.lora_A.dtype), "input in the adapter's dtype"))
    return F.add(result, F.cast(update, result.dtype, "update cast"), "output")
