"""Operators that send tokens to experts and bring them back: choosing, picking rows, products over groups of rows.

What each saves is in PyTorch's tools/autograd/derivatives.yaml under the name given; what its backward allocates, in
torch/csrc/autograd/FunctionsManual.cpp (``value_selecting_reduction_backward``, ``div_tensor_other_grad``) and
aten/src/ATen/native/GroupedMM.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.tape.functional.pointwise import cast, fit_to, like, sum_to
from memcalc.tape.tensor import Axis, Shape, Tensor


def topk(x: Tensor, k: Axis, name: str = "top-k") -> tuple[Tensor, Tensor]:
    """``torch.topk(x, k, dim=-1)``: values and int64 indices. Saves the indices; backward scatters into zeros of the whole shape."""
    shape = (*x.shape[:-1], k)
    values, indices = x.tape.new(shape, x.dtype, f"{name} values"), x.tape.new(shape, "int64", f"{name} indices")
    whole = x.shape
    x.tape.record(values, (x,), (indices,), lambda wants, g, indices: (_scattered(g, whole, f"gradient of {name}"),))
    return values, indices


def gather(x: Tensor, indices: Tensor, name: str = "gathered") -> Tensor:
    """``x.gather(-1, indices)``. Saves the indices; backward adds into zeros of the whole shape."""
    out = x.tape.new(indices.shape, x.dtype, name)
    whole = x.shape
    x.tape.record(out, (x,), (indices,), lambda wants, g, indices: (_scattered(g, whole, f"gradient of {name}"),))
    return out


def scatter(x: Tensor, indices: Tensor, shape: Shape, name: str) -> Tensor:
    """``full(…).scatter_(-1, indices, x)`` into a constant. Saves the indices; backward gathers."""
    out = x.tape.new(shape, x.dtype, name)
    x.tape.record(out, (x,), (indices,), lambda wants, g, indices: (g.tape.new(indices.shape, g.dtype, f"gradient of {name}"),))
    return out


def index_rows(x: Tensor, index: Tensor, rows: Axis, name: str) -> Tensor:
    """``x[index]``: rows of x, in another order or several times. Saves the index; backward puts into zeros of the whole shape, out of place."""
    out = x.tape.new((rows, *x.shape[1:]), x.dtype, name)
    whole = x.shape
    x.tape.record(out, (x,), (index,), lambda wants, g, index: (_scattered(g, whole, f"gradient of {name}"),))
    return out


def pick(x: Tensor, where: Tensor, shape: Shape, name: str) -> Tensor:
    """``x[i, j, None]``: single elements. Saves where they stand; backward puts into zeros of the whole shape, out of place."""
    out = x.tape.new(shape, x.dtype, name)
    whole = x.shape
    x.tape.record(out, (x,), (where,), lambda wants, g, where: (_scattered(g, whole, f"gradient of {name}"),))
    return out


def index_add(x: Tensor, source: Tensor, index: Tensor) -> Tensor:
    """``x.index_add_(0, index, source)``: x's storage under a new node. Saves index and source; backward selects rows of the gradient."""
    out = Tensor(x.tape, x.shape, x.dtype, x.storage)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        return g if wants[0] else None, g.tape.new(saved[1].shape, g.dtype, "gradient of rows") if wants[1] else None

    x.tape.record(out, (x, source), (index, source), backward)
    return out


def index_put(x: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """``x[mask] = values``: x's storage under a new node. Saves the mask; backward copies the gradient with zeros put in, and takes rows out of it."""
    out = Tensor(x.tape, x.shape, x.dtype, x.storage)
    rows = values.shape

    def backward(wants: tuple[bool, ...], g: Tensor, mask: Tensor) -> tuple[Tensor | None, ...]:
        of_x = None
        if wants[0]:
            zeros = g.tape.new(rows, g.dtype, "zeros")
            of_x = like(g, "gradient of the other rows")
            del zeros
        return of_x, g.tape.new(rows, g.dtype, "gradient of rows") if wants[1] else None

    x.tape.record(out, (x, values), (mask,), backward)
    return out


def place_rows(x: Tensor, order: Tensor, name: str) -> Tensor:
    """``empty_like(x)[order] = x``: all rows, elsewhere. Saves the order; backward selects rows."""
    out = like(x, name)
    x.tape.record(out, (x,), (order,), lambda wants, g, order: (like(g, f"gradient of {name}"),))
    return out


def masked_fill_in_place(x: Tensor, mask: Tensor) -> Tensor:
    """``x.masked_fill_(mask, 0)``: x's storage under a new node. Saves the mask; the gradient is masked into a new tensor."""
    out = Tensor(x.tape, x.shape, x.dtype, x.storage)
    x.tape.record(out, (x,), (mask,), lambda wants, g, mask: (like(g, "gradient of masked"),))
    return out


def with_loss(x: Tensor, loss: Tensor) -> Tensor:
    """x itself; going back, a loss of its own gets the gradient one (AddAuxiliaryLoss)."""
    out = Tensor(x.tape, x.shape, x.dtype, x.storage)
    x.tape.record(out, (x, loss), (), lambda wants, g: (g, g.tape.new((), "float32", "one")))
    return out


def _scattered(g: Tensor, whole: Shape, name: str) -> Tensor:
    zeros = g.tape.new(whole, g.dtype, "zeros")
    made = like(zeros, name)
    del zeros
    return made


def clamp(x: Tensor, name: str = "clamped", *, bounds: int = 2, in_place: bool = False) -> Tensor:
    """``x.clamp(min, max)`` with constants. Saves x (in place, a copy of it); backward makes a mask of bools for each bound, then the gradient."""
    kept = like(x, f"{name} before") if in_place and x.tape.grad_enabled and x.requires_grad else x
    out = Tensor(x.tape, x.shape, x.dtype, x.storage) if in_place else like(x, name)

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor) -> tuple[Tensor]:
        inside = [like(x, "inside bound", "bool") for _ in range(bounds)]
        made = like(g, f"gradient of {name}")
        del inside
        return (made,)

    x.tape.record(out, (x,), (kept,), backward)
    return out


def sum_over(x: Tensor, axis: int, name: str, *, keep: bool = False) -> Tensor:
    """``x.sum(dim=axis)``. Saves nothing; its gradient is an expanded view.

    Args:
        x: anything.
        axis: which one to sum over.
        name: of the result.
        keep: the axis stays, with one element.
    """
    shape = (*x.shape[:axis], *((Axis("1", 1),) if keep else ()), *x.shape[axis + 1 :])
    out = x.tape.new(shape, x.dtype, name)
    whole = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (Tensor(g.tape, whole, g.dtype, g.storage),))
    return out


def sum_of_choices(x: Tensor, tokens: Axis, top_k: Axis, name: str) -> Tensor:
    """``x.view(tokens, top_k, …).sum(dim=1)``: what a token's experts say, added up.

    The gradient of the sum is expanded, which rows in a line cannot be a view of: it is copied out, once per choice.
    """
    out = x.tape.new((tokens, *x.shape[1:]), x.dtype, name)
    rows = x.shape

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        if top_k.size == 1:
            return (Tensor(g.tape, rows, g.dtype, g.storage),)
        return (g.tape.new(rows, g.dtype, "gradient of each choice"),)

    x.tape.record(out, (x,), (), backward)
    return out


def div(x: Tensor, y: Tensor, name: str = "quotient", *, in_place: bool = False) -> Tensor:
    """``x / y``, y broadcast to x; saves both. In place (``x /= y``) the result takes x's storage, and what is saved of x is a copy of it.

    Backward first works out y's gradient, ``-g * ((x / y) / y)``, then x's, ``g / y``.
    """
    recorded = x.tape.grad_enabled and (x.requires_grad or y.requires_grad)
    kept = x
    if in_place and recorded:
        kept = like(x, f"{name} before it was divided")
    out = Tensor(x.tape, x.shape, x.dtype, x.storage) if in_place else like(x, name)
    shapes = ((x.shape, x.dtype), (y.shape, y.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_y = None
        if wants[1]:
            once, twice, negative = like(g, "quotient"), like(g, "quotient of quotient"), like(g, "negative gradient")
            of_y = like(g, "gradient of divisor")
            del negative, twice, once
        return like(g, "gradient of dividend") if wants[0] else None, of_y

    x.tape.record(out, (x, y), (kept, y), backward, fit_to(shapes))
    return out


def add_in_place(x: Tensor, y: Tensor) -> Tensor:
    """``x.add_(y)``: x's storage under a new node. Saves nothing; the gradient is handed to both."""
    out = Tensor(x.tape, x.shape, x.dtype, x.storage)
    shapes = ((x.shape, x.dtype), (y.shape, y.dtype))
    x.tape.record(out, (x, y), (), lambda wants, g: tuple(sum_to(g, *s) if w else None for w, s in zip(wants, shapes, strict=True)))
    return out


def grouped_mm(x: Tensor, weight: Tensor, offsets: Tensor, out: Axis, name: str) -> Tensor:
    """``grouped_mm(x, weight, offs)``: each group of rows times its expert's matrix. Autocast leaves it alone: x is cast to the weight's dtype.

    Saves x when the weight takes a gradient, the weight when x does, and the offsets; the weight's gradient is made first.

    Args:
        x: (rows, in), sorted by expert.
        weight: (experts, in, out) or its transpose, resident elsewhere.
        offsets: (experts,) int32, the end of each group.
        out: the new last axis.
        name: of the result.
    """
    tape, x = x.tape, cast(x, weight.dtype, "copy in the experts' dtype")
    y = tape.new((x.shape[0], out), x.dtype, name)
    saves: Sequence[Tensor] = (*((x,) if weight.requires_grad else ()), *((weight,) if x.requires_grad else ()), offsets)
    shapes = (x.shape, weight.shape)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_weight = tape.new(shapes[1], g.dtype, "gradient of weight") if wants[1] else None
        of_x = tape.new(shapes[0], g.dtype, f"gradient of input of {name}") if wants[0] else None
        return of_x, of_weight

    tape.record(y, (x, weight), saves, backward)
    return y
