"""Norms: one kernel each, which keeps its input and a statistic of each row (transformer_engine/pytorch/ops/basic, rmsnorm.py and layer_norm.py)."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import LayerNorm, RMSNorm
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


@runs(RMSNorm)
def rms_norm(ctx: Context, m: RMSNorm, x: Tensor) -> Tensor:
    """x (…, width) → the same. Saves x and the fp32 reciprocal root mean square of each row."""
    return fused_norm(x, [ctx.parameter(w) for w in m.own_weights()], ("reciprocal root mean square",))


@runs(LayerNorm)
def layer_norm(ctx: Context, m: LayerNorm, x: Tensor) -> Tensor:
    """x (…, width) → the same. Saves x and the fp32 mean and reciprocal deviation of each row."""
    return fused_norm(x, [ctx.parameter(w) for w in m.own_weights()], ("mean", "reciprocal deviation"))


def fused_norm(x: Tensor, params: list[Tensor], statistics: tuple[str, ...]) -> Tensor:
    """The kernel that both share."""
    out = like(x, "output")
    rows = [x.tape.new(x.shape[:-1], "float32", name) for name in statistics]
    shapes = [(p.shape, p.dtype) for p in params]

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        of_x = like(x, "gradient of norm") if wants[0] else None
        return (of_x, *(g.tape.new(*s, "gradient of weight") if w else None for w, s in zip(wants[1:], shapes, strict=True)))

    x.tape.record(out, (x, *params), (x, *rows), backward)
    return out
