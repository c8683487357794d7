"""LFM2's mixer by hand."""

from __future__ import annotations

from memcalc.components.short_conv import short_conv
from memcalc.specs.model import Axis
from tests.code.transformers.recorded import BATCH, SEQ, TOKENS, record

HIDDEN = Axis("hidden_size", 6)


def test_three_parts_their_product_and_the_convolution_are_saved() -> None:
    """The projection, B * x, the padded convolution, C * that; the output is there too."""
    kernel = 4
    convolved = BATCH * HIDDEN.size * (SEQ + kernel - 1) * 2
    whole = TOKENS * HIDDEN.size * 2
    assert record(short_conv(HIDDEN, kernel=kernel, bias=False), HIDDEN.size).saved_bytes == 3 * whole + whole + convolved + whole + whole


def test_weights() -> None:
    """Two projections and one kernel for each channel; biases on all three or none."""
    plain, biased = (short_conv(HIDDEN, kernel=4, bias=bias).num_params for bias in (False, True))
    assert plain == 4 * HIDDEN.size**2 + 4 * HIDDEN.size
    assert biased - plain == (3 + 1 + 1) * HIDDEN.size
