"""Checkpoints without reentrance: what is dropped, when it is made anew, and where that stops."""

from __future__ import annotations

from collections.abc import Callable

from memcalc.tape import functional as F
from memcalc.tape.frame import framed
from memcalc.tape.span import Span, sum_up
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Tensor

TOKENS, WIDE = Axis("tokens", 10), Axis("wide", 8)
ACTIVATION = 10 * 8 * 2
WEIGHT = 8 * 8 * 2


def checkpointed(tape: Tape, stretch: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A stretch on x."""
    with framed(tape, lambda: stretch(x)):
        return stretch(x)


def step(*, again: bool) -> tuple[Span, Span, Tape]:
    """Forward and backward of an activation and a linear layer behind it, checkpointed or not."""
    tape = Tape()
    inputs = [tape.input((TOKENS, WIDE), "bfloat16", "x", requires_grad=True)]
    begin = len(tape.events)

    def stretch(x: Tensor) -> Tensor:
        weight = tape.parameter("w", (WIDE, WIDE), "bfloat16", trainable=True)
        return F.linear(F.activation(x, "squashed"), weight, None, WIDE, "y")

    y = checkpointed(tape, stretch, inputs[0]) if again else stretch(inputs[0])
    inputs.clear()
    forward = sum_up(tape.events[begin:])
    grad: list[Tensor | None] = [tape.input(y.shape, y.dtype, "dy")]
    edge = (y.node, y.index) if y.node is not None else None
    begin = len(tape.events)
    tape.backward(edge, grad)
    return forward, sum_up(tape.events[begin:]), tape


def test_only_the_input_and_the_output_are_left() -> None:
    """What stands between them is not, which it would be without the checkpoint."""
    assert step(again=True)[0].net == ACTIVATION
    assert step(again=False)[0].net == 2 * ACTIVATION


def test_backward_makes_anew_what_it_asks_for_and_no_more() -> None:
    """The squashed input once more; the output of the last layer, which nothing has saved, is not made."""
    events = [record.path for sign, record in step(again=True)[2].events if sign > 0]
    assert events.count("activations/squashed") == 2
    assert events.count("activations/y") == 1


def test_backward_ends_as_it_would_have_without() -> None:
    """Nothing of the second run is left, and the weight has one gradient."""
    plain, again = step(again=False)[1], step(again=True)[1]
    assert again.changes["gradients/w"] == plain.changes["gradients/w"] == WEIGHT
    assert plain.net - again.net == -ACTIVATION  # what was dropped before does not die now
    assert step(again=True)[2].nodes == []
