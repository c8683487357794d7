"""Means over other axes than the last, and deviations."""

from __future__ import annotations

from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


def mean_of_first(x: Tensor, name: str = "mean") -> Tensor:
    """The mean over the first axis. Saves nothing; backward spreads the gradient to the full shape."""
    out = x.tape.new(x.shape[1:], x.dtype, name)
    shape = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(shape, g.dtype, "gradient of mean"),))
    return out


def std(x: Tensor, name: str = "standard deviation") -> Tensor:
    """``x.std(dim=-1, keepdim=True)`` as a column. Saves x and its result.

    Backward is ``grad / result * (x - mean(x))`` (FunctionsManual.cpp, std_backward).
    """
    out = x.tape.new(x.shape[:-1], x.dtype, name)

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, result: Tensor) -> tuple[Tensor]:
        column = like(result, "gradient / deviation")
        mean = like(result, "mean")
        centred = like(x, "centred")
        made = like(x, "gradient of deviation")
        del column, mean, centred
        return (made,)

    x.tape.record(out, (x,), (x, out), backward)
    return out
