"""Feed-forward networks."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import MLP, GatedMLP
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(GatedMLP)
def gated_mlp(ctx: Context, m: GatedMLP, x: Tensor) -> Tensor:
    """``proj(act(fc_1(x)) * fc_2(x))``, both products first (LLaMAMLP.forward, GemmaMLP.forward)."""
    assert m.up is not None
    gate, up = ctx.run(m.gate, x), ctx.run(m.up, x)
    x = F.mul(apply_activation(gate, m.activation), up, "gate * up")
    return ctx.run(m.down, x)


@runs(MLP)
def mlp(ctx: Context, m: MLP, x: Tensor) -> Tensor:
    """``proj(gelu(fc(x)))``, one kernel (GptNeoxMLP.forward)."""
    x = ctx.run(m.up, x)
    x = apply_activation(x, "gelu")
    return ctx.run(m.down, x)
