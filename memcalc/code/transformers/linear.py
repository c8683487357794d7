"""Linear layers: nn.Linear, cut by DTensor's column- and row-wise styles under tensor parallelism."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.fp8 import is_product, te_linear, torchao_linear
from memcalc.components import Conv1D, Linear, SeparateBiasLinear
from memcalc.tape import functional as F
from memcalc.tape.functional.collective import all_reduce, reduce_gradient
from memcalc.tape.functional.matmul import cast_weight, under_autocast
from memcalc.tape.tensor import Tensor


@runs(Linear)
def linear(ctx: Context, m: Linear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out).

    Column-parallel: out is cut, and the gradient of x is summed over the group; row-parallel: in is cut, and the output is summed
    (torch/distributed/tensor/parallel/style.py, ColwiseParallel and RowwiseParallel).
    """
    if ctx.settings.fp8 == "te" and is_product(m):
        params = [ctx.parameter(weight) for weight in m.own_weights()]
        return te_linear(x, params[0], params[1] if m.bias else None, params[0].shape[0], ctx.tape.autocast or x.dtype)
    params = [cast_weight(ctx.parameter(weight), ctx.weight_path(weight)) for weight in m.own_weights()]
    if ctx.settings.fp8 and is_product(m):
        return torchao_linear(under_autocast(x), params[0], params[1] if m.bias else None, params[0].shape[0])
    if ctx.has_tp and m.split == "column":
        x = reduce_gradient(x)
    y = F.linear(x, params[0], params[1] if m.bias else None, params[0].shape[0], "output")
    return all_reduce(y) if ctx.has_tp and m.split == "row" else y


@runs(Conv1D)
def conv1d(ctx: Context, m: Conv1D, x: Tensor) -> Tensor:
    """x (…, in) → (…, out), as one matrix product with bias (Conv1D.forward)."""
    params = [cast_weight(ctx.parameter(weight), ctx.weight_path(weight)) for weight in m.own_weights()]
    return F.linear(x, params[0], params[1] if m.bias else None, params[0].shape[1], "output")


@runs(SeparateBiasLinear)
def separate_bias_linear(ctx: Context, m: SeparateBiasLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out): the product, then a sum with the bias (FalconLinear.forward)."""
    params = [cast_weight(ctx.parameter(weight), ctx.weight_path(weight)) for weight in m.own_weights()]
    y = F.linear(x, params[0], None, params[0].shape[0], "product")
    return F.add(y, params[1], "output") if m.bias else y
