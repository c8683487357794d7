"""Elementwise operators. One output the size of the (larger) input; what is saved differs."""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.tape.tape import Finish
from memcalc.tape.tensor import Shape, Tensor, numel
from memcalc.units import DTYPE_BYTES


def like(x: Tensor, name: str, dtype: str | None = None) -> Tensor:
    """A fresh tensor of the shape (and dtype) of another."""
    return x.tape.new(x.shape, dtype or x.dtype, name)


def promote(a: str, b: str) -> str:
    """The dtype of an operation on two floating dtypes: the wider one."""
    return a if DTYPE_BYTES[a] >= DTYPE_BYTES[b] else b


def same_size(a: Shape, b: Shape) -> bool:
    """Whether two shapes have as many elements, as a view and what it views have."""
    found = numel(a) == numel(b)
    return found if isinstance(found, bool) else bool(found.all())


def sum_to(grad: Tensor, shape: Shape, dtype: str) -> Tensor:
    """A gradient summed down to a broadcast input and cast to its dtype; a view where nothing has to be done."""
    if grad.shape is not shape and not same_size(grad.shape, shape):
        grad = grad.tape.new(shape, grad.dtype, "sum")
    return grad if grad.dtype == dtype else like(grad, "cast of gradient", dtype)


def fit_to(shapes: Sequence[tuple[Shape, str]]) -> Finish:
    """What brings an operator's gradients to the shapes and dtypes of its inputs, one after the other."""

    def finish(raw: list[Tensor | None]) -> list[Tensor | None]:
        return [sum_to(made, *s) if (made := raw.pop(0)) is not None else None for s in shapes]

    return finish


def cast(x: Tensor, dtype: str, name: str | None = None) -> Tensor:
    """``x.to(dtype)``: a copy, or x itself when nothing changes. Saves nothing."""
    if x.dtype == dtype:
        return x
    y = like(x, name or f"{dtype} copy", dtype)
    x.tape.record(y, (x,), (), lambda wants, g, source=x.dtype: (like(g, "gradient of cast", source),))
    return y


def add(x: Tensor, y: Tensor, name: str = "sum") -> Tensor:
    """``x + y``, y broadcast to x. Saves nothing; the gradient is handed to both."""
    out = like(x, name, promote(x.dtype, y.dtype))
    shapes = ((x.shape, x.dtype), (y.shape, y.dtype))
    x.tape.record(out, (x, y), (), lambda wants, g: tuple(sum_to(g, *s) if w else None for w, s in zip(wants, shapes, strict=True)))
    return out


def sub(x: Tensor, y: Tensor, name: str = "difference") -> Tensor:
    """``x - y``, y broadcast to x. Saves nothing; y's gradient is negated in full before it is summed down."""
    out = like(x, name, promote(x.dtype, y.dtype))
    shapes = ((x.shape, x.dtype), (y.shape, y.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        return sum_to(g, *shapes[0]) if wants[0] else None, sum_to(like(g, "negative of gradient"), *shapes[1]) if wants[1] else None

    x.tape.record(out, (x, y), (), backward)
    return out


def dropout(x: Tensor, p: float, name: str = "after dropout") -> Tensor:
    """``F.dropout(x, p, training=True)`` on a GPU: a copy and a mask of one byte an element, which it saves (native_dropout); x itself at p = 0.

    A CPU has no such kernel and keeps its mask in the dtype of x.
    """
    if p <= 0:
        return x
    out, mask = like(x, name), like(x, "dropout mask", "bool")
    x.tape.record(out, (x,), (mask,), lambda wants, g, mask: (like(g, "gradient of dropout"),))
    return out


def masked_fill(x: Tensor, mask: Tensor | None, name: str = "masked") -> Tensor:
    """``x.masked_fill(mask, constant)``, and ``torch.where(mask, x, constant)``. Saves the mask (None: a buffer, resident elsewhere)."""
    out = like(x, name)
    x.tape.record(out, (x,), () if mask is None else (mask,), lambda wants, g, *rest: (like(g, "gradient of masked"),))
    return out


def add_scalar(x: Tensor, name: str = "sum") -> Tensor:
    """``x + constant``. Saves nothing and passes the gradient through."""
    out = like(x, name)
    x.tape.record(out, (x,), (), lambda wants, g: (g,))
    return out


def scale(x: Tensor, name: str = "scaled") -> Tensor:
    """``x * constant``. Saves nothing."""
    out = like(x, name)
    x.tape.record(out, (x,), (), lambda wants, g: (like(g, "gradient of scale"),))
    return out


def mul(x: Tensor, y: Tensor, name: str = "product") -> Tensor:
    """``x * y``, y broadcast to x. Saves each factor whose partner takes a gradient.

    Backward makes both products, then sums each over what was broadcast and casts it.
    """
    out = like(x, name, promote(x.dtype, y.dtype))
    saves = ((y,) if x.requires_grad else ()) + ((x,) if y.requires_grad else ())
    shapes = ((x.shape, x.dtype), (y.shape, y.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(like(g, "gradient of product") if w else None for w in wants)

    x.tape.record(out, (x, y), saves, backward, fit_to(shapes))
    return out


def pow2(x: Tensor, name: str = "square") -> Tensor:
    """``x.pow(2)``. Saves x; backward is ``grad * (2 * x.pow(1))``."""
    return _in_steps(x, name, ("power", "twice the power", "gradient of square"))


def mean(x: Tensor, name: str = "mean") -> Tensor:
    """The mean over the last axis, kept as a column. Saves nothing; backward spreads the gradient to the full shape."""
    out = x.tape.new(x.shape[:-1], x.dtype, name)
    shape = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(shape, g.dtype, "gradient of mean"),))
    return out


def rsqrt(x: Tensor, name: str = "rsqrt") -> Tensor:
    """``torch.rsqrt(x)``. Saves its result; backward is ``-0.5 * grad * result.pow(3)``."""
    return _in_steps(x, name, ("cube", "half of gradient", "gradient of rsqrt"), saves_result=True)


def inverse_root(x: Tensor, name: str = "power") -> Tensor:
    """``torch.pow(x, -0.5)``. Saves x; backward is ``grad * (-0.5 * x.pow(-1.5))``."""
    return _in_steps(x, name, ("power", "half of the power", "gradient of power"))


def _in_steps(x: Tensor, name: str, steps: tuple[str, str, str], *, saves_result: bool = False) -> Tensor:
    """An operator whose backward goes over two temporaries the size of what it saved."""
    out = like(x, name)

    def backward(wants: tuple[bool, ...], g: Tensor, saved: Tensor) -> tuple[Tensor]:
        first, second = like(saved, steps[0]), like(saved, steps[1])
        made = like(saved, steps[2])
        del first, second
        return (made,)

    x.tape.record(out, (x,), (out if saves_result else x,), backward)
    return out


def scale_in_place(x: Tensor) -> Tensor:
    """``x *= constant``: x's own storage; its gradient is scaled into a new one."""
    y = Tensor(x.tape, x.shape, x.dtype, x.storage)
    x.tape.record(y, (x,), (), lambda wants, g: (like(g, "gradient of scale"),))
    return y


def neg(x: Tensor, name: str = "negative") -> Tensor:
    """``-x``. Saves nothing."""
    out = like(x, name)
    x.tape.record(out, (x,), (), lambda wants, g: (like(g, "gradient of negative"),))
    return out


def keeps_result(x: Tensor, name: str) -> Tensor:
    """A one-kernel function whose derivative is known from its result, which it saves: tanh, sigmoid, exp, relu."""
    out = like(x, name)
    x.tape.record(out, (x,), (out,), lambda wants, g, result: (like(g, f"gradient of {name}"),))
    return out


def tanh(x: Tensor, name: str = "tanh") -> Tensor:
    """``torch.tanh(x)``."""
    return keeps_result(x, name)


def layer_norm(x: Tensor, params: Sequence[Tensor], name: str = "output") -> Tensor:
    """``F.layer_norm``. Saves x and the mean and reciprocal deviation of each row (native_layer_norm).

    The statistics are in the dtype of x, as a CPU has them; a GPU keeps them in fp32, which is 4 more bytes a row of bf16.
    """
    out = like(x, name)
    rows = x.shape[:-1]
    mean_, rstd = x.tape.new(rows, x.dtype, "mean"), x.tape.new(rows, x.dtype, "reciprocal deviation")
    shapes = [(p.shape, p.dtype) for p in params]

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        of_x = like(x, "gradient of layer norm") if wants[0] else None
        return (of_x, *(g.tape.new(*s, "gradient of weight") if w else None for w, s in zip(wants[1:], shapes, strict=True)))

    x.tape.record(out, (x, *params), (x, mean_, rstd, *params), backward)
    return out


def activation(x: Tensor, name: str) -> Tensor:
    """A one-kernel activation that saves its input: silu, gelu (exact or tanh), softplus and others."""
    out = like(x, name)
    x.tape.record(out, (x,), (x,), lambda wants, g, x: (like(x, f"gradient of {name}"),))
    return out
