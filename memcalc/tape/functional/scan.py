"""Operators of recurrent models: depthwise convolutions, running sums, outer products, and steps that repeat.

What each saves is in PyTorch's tools/autograd/derivatives.yaml under the name given; what its backward allocates, in
torch/csrc/autograd/FunctionsManual.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memcalc.tape.functional.matmul import matmul, under_autocast
from memcalc.tape.functional.pointwise import fit_to, like, promote, sum_to
from memcalc.tape.functional.shape import clone
from memcalc.tape.tensor import Axis, Shape, Tensor


def conv1d(x: Tensor, params: Sequence[Tensor], length: Axis, name: str = "convolved") -> Tensor:
    """``F.conv1d(x, weight, bias, groups=channels)``. Saves x and the weight; backward makes all gradients at once (convolution_backward).

    Autocast casts weights anew each time, since the module hands over views of them.

    Args:
        x: (batch, channels, seq).
        params: the weight (channels, 1, kernel) and perhaps a bias (channels,).
        length: the new last axis: the sequence and its padding.
        name: of the result.
    """
    x, params = under_autocast(x), [under_autocast(p) for p in params]
    out = x.tape.new((*x.shape[:-1], length), x.dtype, name)
    shapes = [(p.shape, p.dtype) for p in params]

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor | None, ...]:
        of_x = like(x, "gradient of convolution") if wants[0] else None
        return (of_x, *(g.tape.new(*s, "gradient of weight") if w else None for w, s in zip(wants[1:], shapes, strict=True)))

    x.tape.record(out, (x, *params), (x, params[0]), backward)
    return out


def split_into(x: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """``x.split(…)`` along any axis (also chunk): views of the given shapes; backward concatenates their gradients."""
    parts = [Tensor(x.tape, shape, x.dtype, x.storage) for shape in shapes]
    whole, dtype, tape = x.shape, x.dtype, x.tape
    x.tape.record(parts, (x,), (), lambda wants, *gs: (tape.new(whole, dtype, "gradient of split"),))
    return parts


def reordered(x: Tensor, shape: Shape, name: str) -> Tensor:
    """A transposed tensor copied into order; its gradient is copied back."""
    out = x.tape.new(shape, x.dtype, name)
    back = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(back, g.dtype, "gradient in order"),))
    return out


def outer(x: Tensor, y: Tensor, shape: Shape, name: str) -> Tensor:
    """``x * y``, both broadcast to a shape. Saves each factor whose partner takes a gradient; backward makes both products, then sums each."""
    out = x.tape.new(shape, promote(x.dtype, y.dtype), name)
    saves = ((x,) if y.requires_grad else ()) + ((y,) if x.requires_grad else ())
    shapes = ((x.shape, x.dtype), (y.shape, y.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(like(g, "gradient of product") if w else None for w in wants)

    x.tape.record(out, (x, y), saves, backward, fit_to(shapes))
    return out


def stack(parts: Sequence[Tensor], shape: Shape, name: str) -> Tensor:
    """``torch.stack(parts)``. Saves nothing; backward hands out views of the gradient."""
    first = parts[0]
    out = first.tape.new(shape, first.dtype, name)
    shapes = [p.shape for p in parts]

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(Tensor(g.tape, shape, g.dtype, g.storage) if w else None for w, shape in zip(wants, shapes, strict=True))

    first.tape.record(out, parts, (), backward)
    return out


def pad(x: Tensor, shape: Shape, name: str = "padded") -> Tensor:
    """``F.pad`` to a shape; a copy even where nothing is added. Saves nothing; backward copies what remains (constant_pad_nd)."""
    return reordered(x, shape, name)


def cumsum(x: Tensor, name: str = "running sum") -> Tensor:
    """``x.cumsum(dim)``. Saves nothing; backward sums from the other end (cumsum_backward: flip, cumsum, flip)."""
    out = like(x, name)

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        flipped = like(g, "gradient flipped")
        summed = like(g, "running sum of gradient")
        made = like(g, "gradient of running sum")
        del summed, flipped
        return (made,)

    x.tape.record(out, (x,), (), backward)
    return out


def minus(x: Tensor, y: Tensor, shape: Shape, name: str) -> Tensor:
    """``x - y``, both broadcast to a shape. Saves nothing; the gradient is negated for y in full, then each is summed down."""
    out = x.tape.new(shape, x.dtype, name)
    shapes = ((x.shape, x.dtype), (y.shape, y.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        negative = like(g, "negative of gradient") if wants[1] else None
        of_x = sum_to(g, *shapes[0]) if wants[0] else None
        return of_x, None if negative is None else sum_to(negative, *shapes[1])

    x.tape.record(out, (x, y), (), backward)
    return out


def cat_rows(parts: Sequence[Tensor], shape: Shape, name: str) -> Tensor:
    """``torch.cat(parts)`` along any axis. Saves nothing; backward hands out views of the gradient."""
    return stack(parts, shape, name)


def contract(x: Tensor, y: Tensor, shape: Shape, name: str, *, copies: str = "xyg") -> Tensor:
    """``torch.einsum`` of two tensors: one product of matrices, of operands that are brought into order first.

    Saves both operands as the product takes them. Whether an operand or the gradient has to be copied follows from their strides.

    Args:
        x, y: the operands.
        shape: of the result.
        name: of the result.
        copies: which are copied: the letters x, y and g for the gradient of the result.
    """
    left = clone(x, f"left of {name}, in order") if "x" in copies else x
    right = clone(y, f"right of {name}, in order") if "y" in copies else y
    out = matmul(left, right, shape, name)
    if "g" not in copies:
        return out
    y = Tensor(out.tape, shape, out.dtype, out.storage)
    out.tape.record(y, (out,), (), lambda wants, g: (like(g, "gradient in order"),))
    return y


def solve_triangular(a: Tensor, b: Tensor, name: str) -> Tensor:
    """``torch.linalg.solve_triangular(a, b)`` with ones on the diagonal. Saves a and its result (linalg_solve_triangular_backward)."""
    out = like(b, name)

    def backward(wants: tuple[bool, ...], g: Tensor, a: Tensor, result: Tensor) -> tuple[Tensor | None, ...]:
        of_b = like(result, "gradient of right side")
        if not wants[0]:
            return None, of_b
        product = like(a, "product")
        negative = like(a, "negative product")
        del product
        return like(negative, "gradient of triangular matrix"), of_b

    b.tape.record(out, (a, b), (a, out), backward)
    return out


def put(base: Tensor, x: Tensor) -> Tensor:
    """``base[…] = x``: base's storage under a new node. Saves nothing.

    Backward copies the whole gradient, and the part that is x's once more, and fills that part with zeros
    (torch/csrc/autograd/functions/tensor.cpp, CopySlices).
    """
    out = Tensor(base.tape, base.shape, base.dtype, base.storage)
    whole, part = (base.shape, base.dtype), x.shape

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        copy = g.tape.new(*whole, "gradient copied")
        of_x = g.tape.new(part, g.dtype, "gradient of what was put in")
        if not wants[0]:
            return None, of_x
        g.tape.new(part, g.dtype, "zeros")
        return copy, of_x

    base.tape.record(out, (base, x), (), backward)
    return out


def as_if_repeated(x: Tensor, times: Any, saved: Sequence[tuple[Shape, str, str]]) -> Tensor:
    """x itself, after a step of a loop that stands for several: what the others save is there, and goes before the step runs back.

    Memory falls alike with each step that a loop runs back, so the one that is recorded, as the last of them to run back, has the least.

    Args:
        x: what the step hands to the next one.
        times: how many steps there are besides.
        saved: shape, dtype and name of what each of them saves.
    """
    if not (x.tape.grad_enabled and x.requires_grad):
        return x
    axis = Axis("further steps", times)
    more = [x.tape.new((axis, *shape), dtype, name) for shape, dtype, name in saved]
    y = Tensor(x.tape, x.shape, x.dtype, x.storage)
    x.tape.record(y, (x,), more, lambda wants, g, *rest: (g,))
    return y
