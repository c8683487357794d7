"""Linear layers."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import Linear
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(Linear)
def linear(ctx: Context, m: Linear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out)."""
    params = [ctx.parameter(weight) for weight in m.own_weights()]
    return F.linear(x, params[0], params[1] if m.bias else None, params[0].shape[0], "output")
