"""Views and copies that change a shape."""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Axis, Shape, Tensor


def view(x: Tensor, shape: Shape) -> Tensor:
    """The same storage under another shape. Free in both directions."""
    y = Tensor(x.tape, shape, x.dtype, x.storage)
    y.requires_grad, y.node, y.index = x.requires_grad, x.node, x.index
    return y


def clone(x: Tensor, name: str) -> Tensor:
    """A copy (``contiguous`` of a transposed tensor, ``repeat`` to the same size, …). Saves nothing."""
    out = like(x, name)
    x.tape.record(out, (x,), (), lambda wants, g: (g,))
    return out


def split_heads(x: Tensor, shape: Shape) -> Tensor:
    """``x.view(…).transpose(1, 2)``: free forward; its gradient arrives transposed and is copied into order."""
    y = Tensor(x.tape, shape, x.dtype, x.storage)
    back = x.shape
    x.tape.record(y, (x,), (), lambda wants, g: (g.tape.new(back, g.dtype, "gradient in order"),))
    return y


def slice_last(x: Tensor, axis: Axis) -> Tensor:
    """``x[..., a:b]``: a view; backward writes its gradient into zeros of the whole shape."""
    return narrow(x, (*x.shape[:-1], axis))


def narrow(x: Tensor, shape: Shape) -> Tensor:
    """A part of x under its own shape (slices, selected indices): a view; backward writes its gradient into zeros of the whole shape."""
    y = Tensor(x.tape, shape, x.dtype, x.storage)
    whole = x.shape
    x.tape.record(y, (x,), (), lambda wants, g: (g.tape.new(whole, g.dtype, "gradient of slice"),))
    return y


def index(x: Tensor, shape: Shape, name: str) -> Tensor:
    """``x[..., [i], :]``: a copy. Backward makes zeros of the whole shape and a second tensor with the gradient in them (index_put)."""
    out = x.tape.new(shape, x.dtype, name)
    whole = x.shape

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        zeros = g.tape.new(whole, g.dtype, "zeros")
        made = like(zeros, "gradient of index")
        del zeros
        return (made,)

    x.tape.record(out, (x,), (), backward)
    return out


def split_last(x: Tensor, axes: Sequence[Axis]) -> list[Tensor]:
    """``x.split(…, dim=-1)`` (also chunk): views; backward concatenates their gradients."""
    parts = [Tensor(x.tape, (*x.shape[:-1], axis), x.dtype, x.storage) for axis in axes]
    whole, dtype = x.shape, x.dtype
    x.tape.record(parts, (x,), (), lambda wants, *gs: (x_grad(whole, dtype, gs),))
    return parts


def x_grad(whole: Shape, dtype: str, grads: Sequence[Tensor | None]) -> Tensor:
    """The gradient of a tensor that was split: one concatenation."""
    tape = next(g.tape for g in grads if g is not None)
    return tape.new(whole, dtype, "gradient of split")


def cat(parts: Sequence[Tensor], last: Axis, name: str) -> Tensor:
    """``torch.cat(parts, dim=-1)``; see `join`."""
    return join(parts, (*parts[0].shape[:-1], last), name)


def join(parts: Sequence[Tensor], shape: Shape, name: str) -> Tensor:
    """``torch.cat`` of parts to a shape, in the dtype of the first. Saves nothing; backward hands out views of the gradient, cast to each part's dtype."""
    first = parts[0]
    out = first.tape.new(shape, first.dtype, name)
    kinds = [(p.shape, p.dtype) for p in parts]

    def part(g: Tensor, shape: Shape, dtype: str) -> Tensor:
        return Tensor(g.tape, shape, g.dtype, g.storage) if g.dtype == dtype else g.tape.new(shape, dtype, "cast of gradient")

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(part(g, *kind) if w else None for w, kind in zip(wants, kinds, strict=True))

    first.tape.record(out, parts, (), backward)
    return out


def expand(x: Tensor, shape: Shape) -> Tensor:
    """``x.expand(…)``: a view that shows each element several times. Backward sums them."""
    out = Tensor(x.tape, shape, x.dtype, x.storage)
    back = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(back, g.dtype, "sum of copies"),))
    return out


def repeat(x: Tensor, shape: Shape, name: str) -> Tensor:
    """``x.expand(…).reshape(…)``: each element copied several times (repeat_kv). Backward sums the copies."""
    out = x.tape.new(shape, x.dtype, name)
    back = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(back, g.dtype, "sum of copies"),))
    return out
