"""Matrix products: linear layers, batched products, embedding tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memcalc.tape.functional.pointwise import cast, like
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Shape, Tensor


def under_autocast(x: Tensor) -> Tensor:
    """An operand as autocast's lower-precision operators take it (at::autocast::cached_cast)."""
    compute = x.tape.autocast
    if compute is None or x.dtype == compute or x.dtype not in ("float32", "float16", "bfloat16"):
        return x
    return cast(x, compute, f"{compute} copy for autocast")


@contextmanager
def without_autocast(tape: Tape) -> Iterator[None]:
    """What runs inside stands below autocast: operators that another one is made of, which has cast its operands already."""
    before, tape.autocast = tape.autocast, None
    try:
        yield
    finally:
        tape.autocast = before


def cast_weight(weight: Tensor, path: str) -> Tensor:
    """A parameter as autocast's operators take it: cast once, and kept until autocast ends; anew each time if it takes no gradient (cached_cast)."""
    tape = weight.tape
    if tape.autocast is None or weight.dtype == tape.autocast:
        return weight
    if not weight.requires_grad or weight.storage is not None:
        return cast(weight, tape.autocast, "autocast copy of weight")
    kept = tape.weight_casts.get(path)
    if kept is None:
        kept = tape.weight_casts[path] = cast(weight, tape.autocast, "autocast copy of weight")
    return kept


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, out: Axis, name: str) -> Tensor:
    """``F.linear(x, weight, bias)``. Saves x when the weight takes a gradient (or whoever shards has it so), the weight when x does.

    Args:
        x: (…, in).
        weight: (out, in), resident elsewhere or a cast copy.
        bias: (out,) or None.
        out: the new last axis.
    """
    tape, x = x.tape, under_autocast(x)
    y = tape.new((*x.shape[:-1], out), x.dtype, name)
    saves = ((weight,) if x.requires_grad else ()) + ((x,) if weight.requires_grad or tape.keeps_inputs else ())
    shapes: tuple[Shape, Shape] = (x.shape, weight.shape)
    dtypes = (x.dtype, weight.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_weight = tape.new(shapes[1], dtypes[1], "gradient of weight") if wants[1] else None
        of_x = tape.new(shapes[0], dtypes[0], f"gradient of input of {name}") if wants[0] else None
        of_bias = tape.new((out,), dtypes[1], "gradient of bias") if wants[2:] == (True,) else None
        return of_x, of_weight, of_bias

    tape.record(y, (x, weight) if bias is None else (x, weight, bias), saves, backward)
    return y


def matmul(a: Tensor, b: Tensor, shape: Shape, name: str) -> Tensor:
    """``a @ b`` of two activations. Saves both."""
    tape, a, b = a.tape, under_autocast(a), under_autocast(b)
    out = tape.new(shape, a.dtype, name)
    saves = ((b,) if a.requires_grad else ()) + ((a,) if b.requires_grad else ())
    like_a, like_b = (a.shape, a.dtype), (b.shape, b.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        return (
            tape.new(*like_a, f"gradient of left of {name}") if wants[0] else None,
            tape.new(*like_b, f"gradient of right of {name}") if wants[1] else None,
        )

    tape.record(out, (a, b), saves, backward)
    return out


def baddbmm(bias: Tensor, a: Tensor, b: Tensor, shape: Shape, name: str) -> Tensor:
    """``bias + alpha * (a @ b)`` of two activations and a constant, as one product. Saves a and b; each gradient is made, then scaled."""
    tape = a.tape
    out = tape.new(shape, a.dtype, name)
    kinds = ((a.shape, a.dtype), (b.shape, b.dtype))

    def scaled(kind: tuple[Shape, str], side: str) -> Tensor:
        product = tape.new(*kind, f"unscaled gradient of {side} of {name}")
        made = tape.new(*kind, f"gradient of {side} of {name}")
        del product
        return made

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_b = scaled(kinds[1], "right")
        return scaled(kinds[0], "left"), of_b

    tape.record(out, (a, b), (a, b), backward)
    return out


def embedding(indices: Tensor, weight: Tensor, width: Axis, name: str) -> Tensor:
    """``F.embedding``. Saves the indices; backward makes a dense gradient of the whole table (embedding_dense_backward)."""
    tape = indices.tape
    out = tape.new((*indices.shape, width), weight.dtype, name)
    table, dtype = weight.shape, weight.dtype
    tape.record(out, (weight,), (indices,), lambda wants, g, ids: (tape.new(table, dtype, "gradient of table"),))
    return out


__all__ = ["cast_weight", "embedding", "like", "linear", "matmul", "under_autocast", "without_autocast"]
