"""Adapters: PEFT's lora.Linear around a linear layer."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.components.lora import LoraLinear
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(LoraLinear)
def lora_linear(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out) (peft/tuners/lora/layer.py, Linear.forward).

    The frozen layer saves nothing. The adapter saves its input in its own dtype (an fp32 copy of a bf16 activation, one for each
    adapted layer) and the r-wide activation; the sum is made in the wider dtype and cast back.
    """
    result = ctx.run(m.base_layer, x, "base_layer")
    dtype = ctx.computes_in(m.lora_A.dtype)
    x = F.cast(x, dtype, "input in the adapter's dtype")
    x = dropout(ctx, x, m.dropout)
    update = F.scale(ctx.run(m.lora_B, ctx.run(m.lora_A, x)), "update")
    out_dtype = result.dtype
    result = F.add(result, update, "with update")
    del update
    return F.cast(result, out_dtype, "output")
