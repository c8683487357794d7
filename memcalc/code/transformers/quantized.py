"""Linear layers with quantised weights: bitsandbytes' products, and those that dequantise first."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.quantized import QuantizedLinear
from memcalc.tape import functional as F
from memcalc.tape.tensor import Axis, Tensor

BLOCKS = 64
"""Elements of a 4-bit weight that share a maximum."""


@runs(QuantizedLinear)
def quantized_linear(ctx: Context, m: QuantizedLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out) in the dtype of x (bitsandbytes/nn/modules.py, Linear4bit.forward, Linear8bitLt.forward).

    A frozen weight needs no input for backward, and 4-bit products save none (before 0.43.2 they did); it is brought back whole, for a moment, in
    forward and again in backward. bitsandbytes' 8-bit product keeps its input all the same (autograd/_functions.py, MatMul8bitLt, ``ctx.tensors``).
    """
    own = x.dtype
    if m.kernel == "8-bit":
        return int8_product(m, x)
    y = dequantised_product(m, F.cast(x, m.compute, "input in compute dtype"))
    return F.cast(y, own, "output")


def dequantised_product(m: QuantizedLinear, x: Tensor) -> Tensor:
    """The product with the weight in compute dtype, which exists in forward and in backward, for a moment each (MatMul4Bit)."""
    tape = x.tape
    whole = brought_back(m, x)
    y = tape.new((*x.shape[:-1], m.outputs), x.dtype, "product" if x.dtype != m.compute else "output")
    del whole
    kind = (x.shape, x.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, *kept: Tensor) -> tuple[Tensor]:
        maxima = dequantised_maxima(m, g)
        whole = brought_back(m, g)
        del maxima
        of_x = tape.new(*kind, "gradient of input")
        del whole
        return (of_x,)

    tape.record(y, (x,), (x,) if m.keeps_input else (), backward)
    return y


def dequantised_maxima(m: QuantizedLinear, x: Tensor) -> Tensor | None:
    """The maxima of its blocks in fp32, where they are quantised, too."""
    return x.tape.new((Axis("blocks", m.outputs.size * m.inputs.size // BLOCKS),), "float32", "dequantised maxima") if m.scheme.double_quant else None


def brought_back(m: QuantizedLinear, x: Tensor) -> Tensor:
    """The weight in the dtype that it was packed from (``quant_state.dtype``), cast to that of the product where they differ."""
    whole = x.tape.new((m.outputs, m.inputs), m.held or m.compute, "dequantised weight")
    return F.cast(whole, m.compute, "dequantised weight in compute dtype")


def int8_product(m: QuantizedLinear, x: Tensor) -> Tensor:
    """LLM.int8(): an fp16 copy of the input, its int8 values and a scale for each row, then the product; what outliers need is not counted."""
    tape, rows = x.tape, x.shape[:-1]
    half = tape.new(x.shape, "float16", "input in fp16") if x.dtype != "float16" else None
    values, scales = tape.new(x.shape, "int8", "input in int8"), tape.new(rows, "float32", "scales of rows")
    del half
    y = tape.new((*rows, m.outputs), x.dtype, "output")
    del values, scales
    kind = (x.shape, x.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor) -> tuple[Tensor]:
        whole = tape.new((m.outputs, m.inputs), kind[1], "dequantised weight")
        of_x = tape.new(*kind, "gradient of input")
        del whole
        return (of_x,)

    tape.record(y, (x,), (x,), backward)
    return y
