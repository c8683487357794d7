"""Softmax and the likelihood losses."""

from __future__ import annotations

from memcalc.tape.functional.pointwise import cast, like
from memcalc.tape.tensor import Tensor


def softmax(x: Tensor, dtype: str | None = None, name: str = "softmax") -> Tensor:
    """``softmax(x, dim=-1, dtype=dtype)``. Saves its result; a dtype that differs is a copy of x first."""
    x = cast(x, dtype or x.dtype)
    out = like(x, name)
    x.tape.record(out, (x,), (out,), lambda wants, g, result: (like(g, f"gradient of {name}"),))
    return out


def log_softmax(x: Tensor, name: str = "log-softmax") -> Tensor:
    """``log_softmax(x, dim=-1)``. Saves its result."""
    return softmax(x, name=name)


def nll_loss(log_probs: Tensor, target: Tensor) -> Tensor:
    """``nll_loss``: a scalar and the scalar total weight; saves log_probs, target and that weight. Backward fills a gradient of the full shape."""
    tape = log_probs.tape
    out = tape.new((), log_probs.dtype, "loss")
    total = tape.new((), log_probs.dtype, "total weight")
    tape.record(out, (log_probs,), (log_probs, target, total), lambda wants, g, lp, *rest: (like(lp, "gradient of nll"),))
    return out
