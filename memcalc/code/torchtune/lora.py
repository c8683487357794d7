"""Adapters: torchtune's LoRALinear and DoRALinear, which hold base and adapter in one dtype."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.lora import norms_of_rows, quotient
from memcalc.components.lora import LoraLinear
from memcalc.tape import functional as F
from memcalc.tape.tensor import Axis, Tensor


@runs(LoraLinear)
def lora_linear(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out) (LoRALinear.forward): all adapters of one input save it as it is."""
    if m.dora:
        return dora_linear(ctx, m, x)
    out = ctx.run(m.base_layer, x, "base_layer")
    low = ctx.run(m.lora_A, dropout(ctx, x, m.dropout))
    update = F.scale(ctx.run(m.lora_B, low), "update")
    del low
    return F.add(out, update, "output")


def dora_linear(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """With a magnitude for each row (DoRALinear.forward).

    The merged weight is made in full for the norms of its rows, from the identity through both factors; that is recorded, takes no gradient, and
    goes when the layer is through.
    """
    tape = ctx.tape
    base = ctx.run(m.base_layer, x, "base_layer")
    x = dropout(ctx, x, m.dropout)
    update = ctx.run(m.lora_B, ctx.run(m.lora_A, x))
    begin = len(tape.nodes)
    product = ctx.run(m.lora_B, ctx.run(m.lora_A, tape.new((Axis("identity", m.inputs.size), m.inputs), x.dtype, "identity")))
    unused, tape.nodes[begin:] = tape.nodes[begin:], []
    norm = norms_of_rows(tape, (m.outputs, m.inputs), x.dtype)
    magnitude = quotient(ctx.parameter(next(m.own_weights())), norm)
    change = F.mul(base, F.add_scalar(magnitude, "magnitude - 1"), "base times change")
    change = F.add(change, F.scale(F.mul(update, magnitude, "update times magnitude"), "scaled update"), "change")
    out = F.add(change, base, "output")
    del unused, product
    return out
