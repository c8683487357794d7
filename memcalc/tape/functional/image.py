"""Operators of vision towers: convolutions over patches, tokens put in their places.

What each saves is in PyTorch's tools/autograd/derivatives.yaml under the name given; what its backward allocates, in
torch/csrc/autograd/FunctionsManual.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.tape.functional.matmul import under_autocast
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Shape, Tensor


def conv(x: Tensor, params: Sequence[Tensor], shape: Shape, name: str = "patches") -> Tensor:
    """``F.conv2d``, ``F.conv3d`` whose stride is its kernel. Saves x and the weight; backward makes all gradients at once (convolution_backward).

    Args:
        x: pixels.
        params: the weight and perhaps a bias.
        shape: of the result.
        name: of the result.
    """
    x = under_autocast(x)
    out = x.tape.new(shape, x.dtype, name)
    shapes = [(p.shape, p.dtype) for p in params]

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor | None, ...]:
        of_x = like(x, "gradient of convolution") if wants[0] else None
        return (of_x, *(g.tape.new(*s, "gradient of weight") if w else None for w, s in zip(wants[1:], shapes, strict=False)))

    x.tape.record(out, (x, *params), (x, params[0]), backward)
    return out


def class_and_patches(token: Tensor, patches: Tensor, shape: Shape) -> Tensor:
    """``cat((token.expand(…), patches), dim=1)``. Saves nothing; backward hands out views, and sums the token's over the images."""
    out = patches.tape.new(shape, patches.dtype, "class token and patches")
    back, of_token = patches.shape, token.shape

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        summed = g.tape.new(of_token, g.dtype, "sum of copies") if wants[0] else None
        return summed, Tensor(g.tape, back, g.dtype, g.storage) if wants[1] else None

    patches.tape.record(out, (token, patches), (), backward)
    return out


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor, name: str = "embeddings with images") -> Tensor:
    """``x.masked_scatter(mask, source)``. Saves the mask; backward fills zeros into a copy of the gradient, then gathers the source's."""
    out = like(x, name)
    rows, dtype = source.shape, source.dtype

    def backward(wants: tuple[bool, ...], g: Tensor, mask: Tensor) -> tuple[Tensor | None, ...]:
        of_x = like(g, "gradient of text embeddings") if wants[0] else None
        return of_x, g.tape.new(rows, dtype, "gradient of image embeddings") if wants[1] else None

    x.tape.record(out, (x, source), (mask,), backward)
    return out


def unbind(x: Tensor, shape: Shape) -> list[Tensor]:
    """``x.unbind(0)``: views, one for each of the first axis; backward stacks their gradients."""
    parts = [Tensor(x.tape, shape, x.dtype, x.storage) for _ in range(x.shape[0].size)]
    whole, dtype, tape = x.shape, x.dtype, x.tape
    x.tape.record(parts, (x,), (), lambda wants, *gs: (tape.new(whole, dtype, "stacked gradients"),))
    return parts


def rows_at(x: Tensor, shape: Shape, name: str) -> Tensor:
    """``x[mask]``: a copy of some rows; backward puts their gradient into zeros of the whole shape, out of place."""
    out = x.tape.new(shape, x.dtype, name)
    whole = x.shape

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        zeros = g.tape.new(whole, g.dtype, "zeros")
        made = like(zeros, f"gradient of {name}")
        del zeros
        return (made,)

    x.tape.record(out, (x,), (), backward)
    return out


def put_rows(x: Tensor, rows: Tensor) -> Tensor:
    """``x[mask] = rows``: x's storage under a new node; backward copies the gradient with zeros in these rows, and picks theirs."""
    out = Tensor(x.tape, x.shape, x.dtype, x.storage)
    shape = rows.shape

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        of_x = None
        if wants[0]:
            zeros = g.tape.new(shape, g.dtype, "zeros")
            of_x = like(g, "gradient of the other rows")
            del zeros
        return of_x, g.tape.new(shape, g.dtype, "gradient of rows") if wants[1] else None

    x.tape.record(out, (x, rows), (), backward)
    return out


def average_pool(x: Tensor, shape: Shape, name: str = "averages") -> Tensor:
    """``F.avg_pool2d``. Saves x; backward makes its whole gradient."""
    out = x.tape.new(shape, x.dtype, name)
    x.tape.record(out, (x,), (x,), lambda wants, g, x: (like(x, f"gradient of {name}"),))
    return out


def unfold(x: Tensor, shape: Shape, name: str) -> Tensor:
    """``F.unfold`` with a stride of its kernel (im2col): a copy. Saves nothing; backward puts the gradient together again (col2im)."""
    out = x.tape.new(shape, x.dtype, name)
    whole, dtype = x.shape, x.dtype
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(whole, dtype, f"gradient of {name}"),))
    return out
