"""Operators that send tokens to experts: what each leaves for backward, and what backward needs at once."""

from __future__ import annotations

from collections.abc import Callable

from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.span import Span, sum_up
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Tensor

TOKENS, EXPERTS, CHOSEN, ROWS, WIDE, NARROW = Axis("tokens", 10), Axis("experts", 6), Axis("top_k", 2), Axis("rows", 20), Axis("wide", 8), Axis("narrow", 3)
HALF = Axis("rows of expert", 5)
SCORES, WEIGHTS, INDICES = 2 * 10 * 6, 2 * 10 * 2, 8 * 10 * 2
HIDDEN, SORTED = 2 * 10 * 8, 2 * 20 * 8


def step(shape: tuple[Axis, ...], make: Callable[[Tensor], Tensor], *, needs_grad: bool = True) -> tuple[Span, Span]:
    """Forward and backward of one operator on a bf16 input that its caller drops, and on whose gradient nothing waits."""
    tape = Tape()
    inputs = [tape.input(shape, "bfloat16", "x", requires_grad=needs_grad)]
    begin = len(tape.events)
    y = make(inputs[0])
    inputs.clear()
    forward = sum_up(tape.events[begin:])
    edge = (y.node, y.index) if y.node is not None else None
    grads: list[Tensor | None] = [tape.input(y.shape, y.dtype, "dy")]
    del y
    begin = len(tape.events)
    tape.backward(edge, grads)
    return forward, sum_up(tape.events[begin:])


def test_topk_saves_indices_alone() -> None:
    """The scores go, values and indices stay; backward scatters into zeros and keeps the result beside them for a moment."""
    forward, backward = step((TOKENS, EXPERTS), lambda x: routing.topk(x, CHOSEN)[0])
    assert forward.net == WEIGHTS + INDICES - SCORES
    assert backward.peak == 2 * SCORES


def test_values_of_topk_alone_take_a_gradient() -> None:
    values, indices = routing.topk(Tape().input((TOKENS, EXPERTS), "bfloat16", "x", requires_grad=True), CHOSEN)
    assert values.requires_grad
    assert not indices.requires_grad


def test_sorted_rows_do_not_need_the_tokens() -> None:
    """Selecting rows saves which ones; backward has zeros as large as the tokens twice."""

    def rows(x: Tensor) -> Tensor:
        return routing.index_rows(x, x.tape.new((ROWS,), "int64", "order"), ROWS, "rows")

    forward, backward = step((TOKENS, WIDE), rows)
    assert forward.net == SORTED + 8 * 20 - HIDDEN
    assert backward.peak == 2 * HIDDEN


def test_a_grouped_product_saves_its_rows_where_experts_learn() -> None:
    """And only then: of frozen experts the offsets alone are kept."""

    def product(x: Tensor, *, trainable: bool) -> Tensor:
        weight = x.tape.parameter("w", (EXPERTS, NARROW, WIDE), "bfloat16", trainable=trainable)
        return routing.grouped_mm(x, weight, x.tape.new((EXPERTS,), "int32", "offsets"), NARROW, "y")

    out, offsets = 2 * 20 * 3, 4 * 6
    learning, backward = step((ROWS, WIDE), lambda x: product(x, trainable=True))
    frozen, _ = step((ROWS, WIDE), lambda x: product(x, trainable=False))
    assert learning.net == out + offsets
    assert frozen.net == out + offsets - SORTED
    assert backward.changes["gradients/w"] == 2 * 6 * 3 * 8


def test_gradients_of_a_grouped_product_are_as_large_as_all_experts() -> None:
    """Whatever the routing: the weight's gradient covers experts that no row chose, too."""

    def product(x: Tensor) -> Tensor:
        weight = x.tape.parameter("w", (EXPERTS, NARROW, WIDE), "bfloat16", trainable=True)
        return routing.grouped_mm(x, weight, x.tape.new((EXPERTS,), "int32", "offsets"), NARROW, "y")

    _, backward = step((Axis("one row", 1), WIDE), product)
    assert backward.changes["gradients/w"] == 2 * 6 * 3 * 8


def test_the_sum_over_choices_copies_its_gradient_once_per_choice() -> None:
    forward, backward = step((ROWS, WIDE), lambda x: routing.sum_of_choices(x, TOKENS, CHOSEN, "sum"))
    assert forward.net == HIDDEN - SORTED
    assert backward.peak == SORTED


def test_the_sum_over_one_choice_copies_nothing() -> None:
    _, backward = step((TOKENS, WIDE), lambda x: routing.sum_of_choices(x, TOKENS, Axis("top_k", 1), "sum"))
    assert backward.peak == 0


def test_dividing_in_place_keeps_a_copy_of_what_was_there() -> None:
    """Backward reads the dividend, which the division overwrites."""

    def normalised(x: Tensor, *, in_place: bool) -> Tensor:
        return routing.div(x, routing.sum_over(x, 1, "sum", keep=True), in_place=in_place)

    there, _ = step((TOKENS, CHOSEN), lambda x: normalised(x, in_place=True))
    anew, _ = step((TOKENS, CHOSEN), lambda x: normalised(x, in_place=False))
    assert there.net == anew.net == WEIGHTS + 2 * 10


def test_clamping_in_place_keeps_a_copy_where_a_gradient_comes_back() -> None:
    learning, backward = step((TOKENS, WIDE), lambda x: routing.clamp(x, in_place=True))
    frozen, _ = step((TOKENS, WIDE), lambda x: routing.clamp(x, in_place=True), needs_grad=False)
    assert learning.net == HIDDEN
    assert frozen.net == 0
    assert backward.peak == 2 * 10 * 8 + HIDDEN


def test_added_rows_go_into_storage_that_is_there() -> None:
    """The rows stay, and where they went; backward selects them from the gradient."""

    def collect(x: Tensor) -> Tensor:
        return routing.index_add(x.tape.new((TOKENS, WIDE), "bfloat16", "output"), x, x.tape.new((HALF,), "int64", "where"))

    forward, backward = step((HALF, WIDE), collect)
    assert forward.net == HIDDEN + 8 * 5
    assert backward.peak == HIDDEN // 2


def test_rows_that_are_put_in_need_not_stay() -> None:
    """A mask of bools says where; the first rows go into storage that takes no gradient."""

    def collect(x: Tensor) -> Tensor:
        return routing.index_put(x.tape.new((TOKENS, WIDE), "bfloat16", "output"), x, x.tape.new((TOKENS,), "bool", "mask"))

    forward, backward = step((HALF, WIDE), collect)
    assert forward.net == HIDDEN + 10 - HIDDEN // 2
    assert backward.peak == HIDDEN // 2


def test_later_rows_copy_the_gradient_of_all() -> None:
    """Zeros for the rows, a copy of the whole gradient with them in it, and the rows' own."""

    def collect(x: Tensor) -> Tensor:
        out = routing.index_put(x.tape.new((TOKENS, WIDE), "bfloat16", "output"), x, x.tape.new((TOKENS,), "bool", "mask"))
        return routing.index_put(out, F.like(x, "constant"), x.tape.new((TOKENS,), "bool", "mask"))

    _, backward = step((HALF, WIDE), collect)
    assert backward.peak == HIDDEN + HIDDEN // 2
