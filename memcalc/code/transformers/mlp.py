"""Feed-forward networks."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers import liger
from memcalc.components import MLP, GatedMLP
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.shape import split_last
from memcalc.tape.tensor import Axis, Tensor


@runs(GatedMLP)
def gated_mlp(ctx: Context, m: GatedMLP, x: Tensor) -> Tensor:
    """``down(act(gate(x)) * up(x))`` (LlamaMLP.forward); a fused projection is chunked first (Phi3MLP.forward)."""
    if "mlp" in ctx.settings.lora_kernels:
        from memcalc.code.transformers import lora_kernels

        if lora_kernels.are_fused(ctx, "mlp", m.gate, m.up, m.down):
            return lora_kernels.network(ctx, m, x)
    swapped = ctx.settings.liger.mlp
    if m.up is not None and swapped:
        return ctx.run(m.down, liger.gate_mul(ctx.run(m.gate, x), ctx.run(m.up, x)))
    if m.up is not None:
        return ctx.run(m.down, F.mul(apply_activation(ctx.run(m.gate, x), m.activation), ctx.run(m.up, x), "gate * up"))
    both = ctx.run(m.gate, x)
    half = Axis("intermediate_size", both.shape[-1].size // 2)
    gate, up = split_last(both, (half, half))
    if swapped:
        return ctx.run(m.down, liger.gate_mul(F.clone(gate, "gate"), F.clone(up, "up")))
    up = F.mul(up, apply_activation(gate, m.activation), "gate * up")
    return ctx.run(m.down, up)


@runs(MLP)
def mlp(ctx: Context, m: MLP, x: Tensor) -> Tensor:
    """``down(act(up(x)))``."""
    if m.activation == "relu2" and ctx.settings.liger.relu_squared:
        return ctx.run(m.down, liger.relu_squared(ctx.run(m.up, x)))
    return ctx.run(m.down, apply_activation(ctx.run(m.up, x), m.activation))
