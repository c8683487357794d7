"""Linear layers by how they are cut."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import parallel
from memcalc.components import Linear
from memcalc.tape.tensor import Tensor


@runs(Linear)
def linear(ctx: Context, m: Linear, x: Tensor) -> Tensor:
    """x (sequence, batch, in) → (sequence, batch, out)."""
    params = [ctx.parameter(weight) for weight in m.own_weights()]
    product = {"column": parallel.column, "vocab": parallel.column, "row": parallel.row}.get(m.split or "", parallel.plain)
    return product(ctx, x, params, params[0].shape[0], "output")
