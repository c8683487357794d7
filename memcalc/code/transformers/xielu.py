"""xIELU, operator by operator: what transformers runs where the package with the kernel is not installed."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.xielu import XIELU, XIELUMLP
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(XIELUMLP)
def xielu_mlp(ctx: Context, m: XIELUMLP, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same shape (ApertusMLP.forward)."""
    return ctx.run(m.down, ctx.run(m.act_fn, ctx.run(m.up, x), "act_fn"))


@runs(XIELU)
def xielu(ctx: Context, m: XIELU, x: Tensor) -> Tensor:
    """``where(x > 0, p * x * x + beta * x, (expm1(min(x, eps)) - x) * n + beta * x)`` (XIELUActivation._xielu_python)."""
    alpha_p, alpha_n = (F.activation(ctx.parameter(w), "slope") for w in m.own_weights())
    alpha_n = F.add_scalar(alpha_n, "slope")
    positive = F.like(x, "x > 0", "bool")
    right = F.mul(F.mul(x, alpha_p, "slope * x"), x, "parabola")
    right = F.add(right, F.scale(x, "beta * x"))
    left = F.mul(F.sub(F.keeps_result(minimum(x), "expm1"), x), alpha_n, "exponential")
    left = F.add(left, F.scale(x, "beta * x"))
    return where(positive, right, left)


def minimum(x: Tensor) -> Tensor:
    """``torch.min(x, constant)``. Saves x; backward halves the gradient where both are equal and clears it where the constant is less."""
    out = F.like(x, "minimum")

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor) -> tuple[Tensor]:
        equal, half = F.like(x, "x == eps", "bool"), F.like(g, "half of gradient")
        made = F.like(g, "gradient of minimum")
        del equal, half
        F.like(x, "x > eps", "bool")
        return (made,)

    x.tape.record(out, (x,), (x,), backward)
    return out


def where(choice: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``torch.where(choice, x, y)``. Saves the choice; each gradient is zero where the other was taken."""
    out = F.like(x, "output")
    x.tape.record(out, (x, y), (choice,), lambda wants, g, choice: tuple(F.like(g, "gradient of branch") for _ in wants))
    return out
