"""Products with packed weights: what stays for backward, what exists for a moment."""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context, Settings
from memcalc.components.quantized import QuantizedLinear
from memcalc.specs.model import Axis
from memcalc.specs.quantization import Scheme
from memcalc.tape.span import Span, sum_up
from memcalc.tape.tape import Tape

TOKENS, IN, OUT = 64, 128, 256


def spans(*, kernel: Any = "4-bit", dtype: str = "bfloat16", held: str | None = None, keeps_input: bool = False) -> tuple[Span, Span]:
    """Forward and backward of one layer, whose input and output are held outside."""
    ctx = Context(Tape(), Settings("transformers", "sdpa", 1, TOKENS, dtype))
    x = ctx.tape.input((ctx.batch, ctx.seq, Axis("in", IN)), dtype, "x", requires_grad=True)
    begin = len(ctx.tape.events)
    layer = QuantizedLinear("q_proj", Axis("in", IN), Axis("out", OUT), scheme=Scheme("nf4", 4), kernel=kernel, held=held, keeps_input=keeps_input)
    y = ctx.run(layer, x)
    forward = sum_up(ctx.tape.events[begin:])
    begin = len(ctx.tape.events)
    assert y.node is not None
    ctx.tape.backward((y.node, y.index), [None or ctx.tape.input(y.shape, y.dtype, "gradient")])
    return forward, sum_up(ctx.tape.events[begin:])


def test_the_weight_exists_for_a_moment_both_ways() -> None:
    """Beside the output, and beside the gradient of the input; no input is saved."""
    forward, backward = spans()
    assert (forward.net, forward.peak) == (2 * TOKENS * OUT, 2 * TOKENS * OUT + 2 * IN * OUT)
    assert backward.peak >= 2 * IN * OUT + 2 * TOKENS * IN


def test_an_fp32_stream_is_computed_in_bf16_and_cast_back() -> None:
    """As under kbit_upcast: the output is fp32 again, and still nothing is saved."""
    assert spans(dtype="float32")[0].net == 4 * TOKENS * OUT


def test_the_8_bit_product_keeps_its_input() -> None:
    """A second reference to it, which outlives the caller's; int8 values and an fp16 copy are there for a moment."""
    forward, _ = spans(kernel="8-bit")
    assert forward.net == 2 * TOKENS * OUT
    assert forward.peak == max(3 * TOKENS * IN, TOKENS * IN + 2 * TOKENS * OUT) + 4 * TOKENS


def test_a_weight_packed_from_another_dtype_exists_twice_for_a_moment() -> None:
    """Brought back in fp16, cast to bf16: bitsandbytes' ``dequantize_4bit(B, state).to(A.dtype)``."""
    forward, _ = spans(held="float16")
    assert forward.peak == 2 * 2 * IN * OUT
    assert forward.net == 2 * TOKENS * OUT


def test_older_4_bit_products_keep_their_input() -> None:
    """bitsandbytes before 0.43.2: a second reference, which outlives the caller's cast."""
    assert spans(dtype="float32", keeps_input=True)[0].net == 4 * TOKENS * OUT + 2 * TOKENS * IN
