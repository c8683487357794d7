"""Feed-forward networks, with fused activations (megatron/core/transformer/mlp.py; fusions/fused_bias_swiglu.py, fused_bias_gelu.py, fused_bias_geglu.py)."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import lora
from memcalc.components import MLP, GatedMLP
from memcalc.specs.model import Axis, shard
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.pointwise import like
from memcalc.tape.functional.shape import split_last
from memcalc.tape.tensor import Tensor

FUSED_GATES = ("silu", "swish", "gelu")
"""Activations of which the gated form is one kernel."""


@runs(GatedMLP)
def gated_mlp(ctx: Context, m: GatedMLP, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden), normalised → the same, without the output's bias: one product for gate and up, the gate as one kernel."""
    linears = [m.gate] if m.up is None else [m.gate, m.up]
    width = m.down.inputs
    half = shard(width, ctx.settings.tp)
    both = lora.column(ctx, x, linears, Axis(f"2 * {half.name}", 2 * half.size), "gate and up")
    del x
    hidden = gate(both, half, m.activation)
    del both
    return lora.row(ctx, hidden, m.down, "mlp branch")


def gate(both: Tensor, half: Axis, activation: str) -> Tensor:
    """``act(gate) * up``: one kernel that saves its input, or operator by operator."""
    if activation not in FUSED_GATES:
        first, second = split_last(both, (half, half))
        return F.mul(apply_activation(first, activation), second, "gated")
    out = both.tape.new((*both.shape[:-1], half), both.dtype, "gated")
    both.tape.record(out, (both,), (both,), lambda wants, g, both: (like(both, "gradient of gate and up"),))
    return out


@runs(MLP)
def mlp(ctx: Context, m: MLP, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden), normalised → the same, without the output's bias: an activation as one kernel, which saves its input."""
    up = lora.column(ctx, x, [m.up], shard(m.up.outputs, ctx.settings.tp), "up")
    del x
    hidden = fused_gelu(up) if m.activation.startswith("gelu") else apply_activation(up, m.activation)
    del up
    return lora.row(ctx, hidden, m.down, "mlp branch")


def fused_gelu(x: Tensor) -> Tensor:
    """Bias and GELU as one kernel, whatever approximation the model's own code takes."""
    out = like(x, "gelu")
    x.tape.record(out, (x,), (x,), lambda wants, g, x: (like(x, "gradient of gelu"),))
    return out
