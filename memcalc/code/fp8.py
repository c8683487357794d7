"""Matrix products in fp8, by Transformer Engine or torchao: which 8-bit copies there are, and what is saved in the place of inputs.

Sources: transformer_engine/pytorch/module/linear.py (``_Linear.forward``: quantizers' ``set_usage``, ``update_usage``), module/base.py
(``get_weight_workspace``); torchao/float8/float8_linear.py (``matmul_with_hp_or_float8_args``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from memcalc.tape.tensor import Axis, Tensor

Kind = Literal["", "te", "torchao"]
LOW, LOW_GRADIENT = "float8_e4m3fn", "float8_e5m2"


def pair(x: Tensor, name: str, dtype: str = LOW) -> list[Tensor]:
    """x in fp8 twice: by rows for one product, transposed for another."""
    return [x.tape.new(x.shape, dtype, f"{name} in fp8"), x.tape.new(x.shape, dtype, f"{name} in fp8, transposed")]


def te_linear(x: Tensor, weight: Tensor, bias: Tensor | None, out: Axis, compute: str) -> Tensor:
    """A product by Transformer Engine's layer: input and weight are cast anew each time, straight from what they are held in.

    Saves the transposed input, one byte an element, where the weight takes a gradient, and both copies of the weight where x does.
    """
    tape = x.tape
    rows, columns = pair(x, "input")
    copies = pair(weight, "weight")
    y = tape.new((*x.shape[:-1], out), compute, "output")
    del rows
    saves = ([columns] if weight.requires_grad else []) + (copies if x.requires_grad else [])
    kinds = ((x.shape, x.dtype), (weight.shape, weight.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        low = pair(g, "gradient of output", LOW_GRADIENT)
        of_x = tape.new(*kinds[0], "gradient of input") if wants[0] else None
        of_weight = tape.new(*kinds[1], "gradient of weight") if wants[1] else None
        of_bias = tape.new((out,), kinds[1][1], "gradient of bias") if wants[2:] == (True,) else None
        del low
        return of_x, of_weight, of_bias

    tape.record(y, (x, weight) if bias is None else (x, weight, bias), saves, backward)
    return y


def torchao_linear(x: Tensor, weight: Tensor, bias: Tensor | None, out: Axis) -> Tensor:
    """A product by torchao's layer, which saves both operands as they are; fp8 copies are there while a product runs, and again in backward."""
    tape = x.tape
    low = [tape.new(x.shape, LOW, "input in fp8"), tape.new(weight.shape, LOW, "weight in fp8")]
    y = tape.new((*x.shape[:-1], out), x.dtype, "output")
    del low
    saves = ((x,) if weight.requires_grad else ()) + ((weight,) if x.requires_grad else ())
    kinds = ((x.shape, x.dtype), (weight.shape, weight.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        made: list[Tensor | None] = []
        low = tape.new(g.shape, LOW_GRADIENT, "gradient of output in fp8")
        for want, kind, other in zip(wants, kinds, kinds[::-1], strict=False):
            copy = tape.new(other[0], LOW, "operand in fp8") if want else None
            made.append(tape.new(*kind, "gradient of operand") if want else None)
            del copy
        del low
        return (*made, *(tape.new((out,), kinds[1][1], "gradient of bias") if want else None for want in wants[2:]))

    tape.record(y, (x, weight) if bias is None else (x, weight, bias), saves, backward)
    return y


def is_product(m: object) -> bool:
    """Whether a linear layer is converted: the output head is not."""
    return getattr(getattr(m, "outputs", None), "name", "") != "vocab_size"


def kept_input(x: Tensor, params: Sequence[Tensor], *, fp8: bool) -> tuple[Tensor, Tensor]:
    """What a product of Megatron's reads, and what it keeps of it: x itself, or x in fp8 by rows, and transposed where a weight takes a gradient."""
    if not fp8:
        return x, x
    if not any(p.requires_grad for p in params):
        rows = x.tape.new(x.shape, LOW, "input in fp8")
        return rows, rows
    rows, columns = pair(x, "input")
    return rows, columns
