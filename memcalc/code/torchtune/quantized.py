"""Linear layers on torchao's NF4 weights, brought back by plain operators.

Sources: torchao/quantization/quantize_/workflows/nf4/nf4_tensor.py, ``LinearNF4`` and ``get_original_weight``; torchtune/modules/low_precision/nf4_linear.py.
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtune.compiled import is_compiled
from memcalc.components.quantized import QuantizedLinear
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Tensor

BLOCK = 64
"""Elements that share a scale."""


@runs(QuantizedLinear)
def nf4_linear(ctx: Context, m: QuantizedLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out). Nothing is saved; the weight is brought back in forward and again in backward."""
    tape, kind = x.tape, (x.shape, x.dtype)
    fused = is_compiled(ctx)
    whole = brought_back(tape, m, x.dtype, fused=fused)
    y = tape.new((*x.shape[:-1], m.outputs), x.dtype, "output")
    del whole

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        whole = brought_back(tape, m, g.dtype, fused=fused)
        of_x = tape.new(*kind, "gradient of input")
        del whole
        return (of_x,)

    tape.record(y, (x,), (), backward)
    return F.add(y, ctx.parameter(list(m.own_weights())[1]), "output with bias") if m.bias else y


def brought_back(tape: Tape, m: QuantizedLinear, dtype: str, *, fused: bool) -> Tensor:
    """The weight: of each half-byte an index of 64 bits, the value that it stands for, and that times its block's scale; both halves, stacked."""
    if fused:
        return tape.new((m.outputs, m.inputs), dtype, "dequantised weight")
    num = m.outputs.size * m.inputs.size
    half, blocks = Axis("in * out / 2", num // 2), Axis(f"in * out / {BLOCK}", num // BLOCK)
    held = []
    for which in ("first", "second"):
        bits = tape.new((half,), "uint8", f"{which} halves of bytes")
        held.append(tape.new((half,), "int64", f"indices of {which} halves"))
        del bits
    held += [tape.new((half,), dtype, f"values of {which} halves") for which in ("first", "second")]
    quotient = tape.new((blocks,), dtype, "scales over their factor")
    held.append(tape.new((blocks,), dtype, "scales"))
    del quotient
    for which in ("first", "second"):
        copy = tape.new((half,), dtype, f"{which} halves by blocks")
        held.append(tape.new((half,), dtype, f"scaled {which} halves"))
        del copy
    whole = tape.new((m.outputs, m.inputs), dtype, "dequantised weight")
    held.clear()
    return whole
