"""Operators of recurrent models: what each leaves for backward, and what backward needs at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.span import Span, sum_up
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Shape, Tensor

BATCH, CHANNELS, SEQ, STATE = Axis("batch", 2), Axis("channels", 3), Axis("seq", 5), Axis("state", 7)
PADDED, ONE = Axis("seq + 3", 8), Axis("1", 1)
ROWS: Shape = (BATCH, CHANNELS, SEQ)
X = 2 * 2 * 3 * 5
"""Bytes of a bf16 tensor of `ROWS`."""


def step(make: Callable[[Tape, Tensor], Tensor], shape: Shape = ROWS) -> tuple[Span, Span]:
    """Forward and backward of what is made of a bf16 input that its caller drops."""
    tape = Tape()
    inputs = [tape.input(shape, "bfloat16", "x", requires_grad=True)]
    begin = len(tape.events)
    y = make(tape, inputs[0])
    inputs.clear()
    forward = sum_up(tape.events[begin:])
    edge = (y.node, y.index) if y.node is not None else None
    grads: list[Tensor | None] = [tape.input(y.shape, y.dtype, "dy")]
    del y
    begin = len(tape.events)
    tape.backward(edge, grads)
    return forward, sum_up(tape.events[begin:])


def test_a_convolution_saves_its_input_and_gives_a_longer_row() -> None:
    """Backward makes the gradients of input, weight and bias at once."""

    def make(tape: Tape, x: Tensor) -> Tensor:
        params = [
            tape.parameter("w", (CHANNELS, ONE, Axis("kernel", 4)), "bfloat16", trainable=True),
            tape.parameter("b", (CHANNELS,), "bfloat16", trainable=True),
        ]
        return scan.conv1d(x, params, PADDED)

    forward, backward = step(make)
    assert forward.net == 2 * 2 * 3 * 8
    assert backward.peak == X + 2 * 3 * 4 + 2 * 3
    assert backward.changes["gradients/w"] == 2 * 3 * 4


def test_parts_of_a_split_are_views_until_one_gradient_is_joined() -> None:
    """Forward is free; backward makes the whole gradient from what arrives."""
    parts: list[Shape] = [(BATCH, CHANNELS, Axis("two", 2)), (BATCH, CHANNELS, Axis("three", 3))]
    forward, backward = step(lambda tape, x: scan.split_into(x, parts)[1])
    assert (forward.net, forward.peak) == (0, 0)
    assert backward.peak == X


def test_a_copy_in_another_order_copies_its_gradient_back() -> None:
    forward, backward = step(lambda tape, x: scan.reordered(x, (BATCH, SEQ, CHANNELS), "turned"))
    assert (forward.net, forward.peak, backward.peak) == (0, X, X)


def test_padding_copies_even_where_nothing_is_added() -> None:
    forward, backward = step(lambda tape, x: scan.pad(x, (BATCH, CHANNELS, PADDED)))
    assert (forward.peak, backward.peak) == (2 * 2 * 3 * 8, X)


def test_an_outer_product_saves_its_factors_and_sums_two_products() -> None:
    """Backward has both products in full at once, then their sums."""
    whole: Shape = (*ROWS, STATE)

    def make(tape: Tape, x: Tensor) -> Tensor:
        return scan.outer(x, tape.input((BATCH, SEQ, STATE), "float32", "y", requires_grad=True), whole, "outer")

    forward, backward = step(make)
    assert forward.changes["activations/outer"] == 7 * 2 * X
    assert "x" not in forward.changes
    assert 2 * 7 * 2 * X <= backward.peak <= 3 * 7 * 2 * X


def test_a_running_sum_saves_nothing_and_runs_back_in_three_steps() -> None:
    forward, backward = step(lambda tape, x: scan.cumsum(x))
    assert (forward.net, backward.peak) == (0, 3 * X)


def test_a_difference_negates_its_gradient_in_full_before_it_is_summed() -> None:
    """Of the last element of each row and all of them."""

    def make(tape: Tape, x: Tensor) -> Tensor:
        return scan.minus(tape.input((BATCH, CHANNELS, ONE), "bfloat16", "last", requires_grad=True), x, ROWS, "difference")

    forward, backward = step(make)
    assert forward.net == 0
    assert backward.peak == X + X // 5


def test_stacked_parts_share_one_gradient() -> None:
    """Each gets a view: backward allocates nothing."""
    forward, backward = step(lambda tape, x: scan.stack((x, x), (Axis("2", 2), *ROWS), "stacked"))
    assert forward.peak == 2 * X
    assert backward.changes.get("activations/sum of gradients", X) == X


@pytest.mark.parametrize("copies", ["", "x", "y", "xy", "xyg"])
def test_a_contraction_saves_its_operands_as_the_product_takes_them(copies: str) -> None:
    """Copies of those that have to be brought into order; backward makes two products."""

    def make(tape: Tape, x: Tensor) -> Tensor:
        y = tape.input(ROWS, "bfloat16", "y", requires_grad=True)
        return scan.contract(x, y, ROWS, "product", copies=copies)

    forward, backward = step(make)
    saved = {name for name in ("left", "right") if forward.changes.get(f"activations/{name} of product, in order") == X}
    assert saved == {name for name, letter in (("left", "x"), ("right", "y")) if letter in copies}
    assert backward.peak == 2 * X


def test_a_triangular_solution_saves_the_matrix_and_itself() -> None:
    """Backward solves once more, and has a product, its negative and its triangle."""
    square: Shape = (BATCH, Axis("n", 4), Axis("m", 4))
    tape = Tape()
    matrix, right = (tape.input(shape, "float32", name, requires_grad=True) for shape, name in ((square, "a"), ((*square[:2], STATE), "b")))
    out = scan.solve_triangular(matrix, right, "solution")
    edge = (out.node, out.index) if out.node is not None else None
    grads: list[Tensor | None] = [tape.input(out.shape, out.dtype, "dy")]
    del right, out
    begin = len(tape.events)
    tape.backward(edge, grads)
    backward = sum_up(tape.events[begin:])
    small, wide = 4 * 2 * 16, 4 * 2 * 4 * 7
    assert backward.peak == wide + 2 * small
    assert matrix.shape == square


def test_putting_into_a_tensor_copies_its_gradient_whole() -> None:
    """And once more the part that was put in; zeros of that size are there for a moment unless nothing asks for the rest."""
    part: Shape = (BATCH, CHANNELS)

    def make(tape: Tape, x: Tensor) -> Tensor:
        return scan.put(F.scale(x), F.narrow(x, part))

    forward, backward = step(make)
    assert forward.net == 0
    assert backward.peak >= X + 2 * (X // 5)


def test_a_step_that_stands_for_others_has_what_they_save() -> None:
    """All of it is there after forward, and goes before the step itself runs back."""

    def make(tape: Tape, x: Tensor) -> Tensor:
        return scan.as_if_repeated(F.tanh(x), 9, ((ROWS, "bfloat16", "state"),))

    forward, backward = step(make)
    assert forward.changes["activations/state"] == 9 * X
    assert backward.changes["activations/state"] == -9 * X
    assert backward.peak == 0


def test_nothing_is_saved_where_nothing_is_recorded() -> None:
    tape = Tape()
    x = tape.input(ROWS, "bfloat16", "x", requires_grad=True)
    begin = len(tape.events)
    with tape.no_grad():
        y = scan.as_if_repeated(x, 9, ((ROWS, "bfloat16", "state"),))
    assert tape.events[begin:] == []
    assert y is x
