"""Linear layers by how they are cut."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.parallel import scatter
from memcalc.code.torchtitan.selection import output
from memcalc.components import Linear
from memcalc.specs.model import Axis
from memcalc.tape.tensor import Tensor


@runs(Linear)
def linear(ctx: Context, m: Linear, x: Tensor) -> Tensor:
    """x (batch, seq, in) → (batch, seq, out); a row-wise one gives this rank's part of the sequence."""
    params = [ctx.parameter(weight) for weight in m.own_weights()]
    y = product(ctx, x, params, params[0].shape[0], "output")
    return scatter(ctx, y, "summed output") if m.split == "row" else y


def product(ctx: Context, x: Tensor, params: list[Tensor], out: Axis, name: str, *, again: bool = False) -> Tensor:
    """``F.linear``. Saves x and the weight. Of a router's, selective checkpoints keep nothing (``per_op_sac_force_recompute_mm_shapes_by_fqns``)."""
    tape, shape, dtype = ctx.tape, x.shape, x.dtype
    y = tape.new((*shape[:-1], out), dtype, name) if again else output(ctx, (*shape[:-1], out), dtype, name, is_product=True)
    kinds = [(p.shape, p.dtype) for p in params]

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_weight = tape.new(*kinds[0], "gradient of weight") if wants[1] else None
        of_x = tape.new(shape, dtype, f"gradient of input of {name}") if wants[0] else None
        of_bias = tape.new(*kinds[1], "gradient of bias") if wants[2:] == (True,) else None
        return (of_x, of_weight, *((of_bias,) if len(kinds) > 1 else ()))

    tape.record(y, (x, *params), (x, params[0]) if params[0].requires_grad else (params[0],), backward)
    return y
