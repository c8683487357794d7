"""The autograd rules: what is saved, what is freed when, whose gradient stays."""

from __future__ import annotations

import pytest

from memcalc.tape import functional as F
from memcalc.tape.span import Span, sum_up
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Tensor

TOKENS, WIDE, NARROW = Axis("tokens", 10), Axis("wide", 7), Axis("narrow", 3)
ACTIVATION = 10 * 7 * 2
OUTPUT = 10 * 3 * 2
WEIGHT = 3 * 7 * 2


def linear_step(tape: Tape, *, trainable: bool, x_grad: bool) -> tuple[Span, Span]:
    """Forward and backward of one linear layer whose input comes from outside."""
    inputs = [tape.input((TOKENS, WIDE), "bfloat16", "x", requires_grad=x_grad)]
    begin = len(tape.events)
    weight = tape.parameter("w", (NARROW, WIDE), "bfloat16", trainable=trainable)
    y = F.linear(inputs[0], weight, None, NARROW, "y")
    inputs.clear()
    forward = sum_up(tape.events[begin:])
    grad: list[Tensor | None] = [tape.input(y.shape, y.dtype, "dy")]
    edge = (y.node, y.index) if y.node is not None else None
    begin = len(tape.events)
    tape.backward(edge, grad)
    return forward, sum_up(tape.events[begin:])


def test_a_trained_linear_saves_its_input() -> None:
    """The input outlives the caller's reference; output and input are alive after forward."""
    forward, backward = linear_step(Tape(), trainable=True, x_grad=True)
    assert forward.net == OUTPUT
    assert backward.changes["gradients/w"] == WEIGHT
    assert backward.changes["x"] == -ACTIVATION


def test_a_frozen_linear_saves_nothing() -> None:
    """A frozen weight needs no input for its gradient, so the input goes when the caller lets go."""
    forward, backward = linear_step(Tape(), trainable=False, x_grad=True)
    assert forward.net == OUTPUT - ACTIVATION
    assert "gradients/w" not in backward.changes


def test_both_gradients_of_a_linear_are_alive_together() -> None:
    """Its backward makes the weight's and the input's gradient before it lets go of anything."""
    _, backward = linear_step(Tape(), trainable=True, x_grad=True)
    assert backward.peak == WEIGHT + ACTIVATION


def test_gradients_that_are_taken_away_do_not_stay() -> None:
    """With buckets or a fused backward, a gradient dies on arrival."""
    _, backward = linear_step(Tape(keep_gradients=False), trainable=True, x_grad=True)
    assert "gradients/w" not in backward.changes
    assert backward.peak == WEIGHT + ACTIVATION


def test_a_second_micro_batch_adds_into_the_gradient() -> None:
    """An accumulated gradient is there already; the new one is added and dropped."""
    _, backward = linear_step(Tape(accumulate=True), trainable=True, x_grad=True)
    assert "gradients/w" not in backward.changes


def test_nothing_is_saved_without_grad() -> None:
    """Under no_grad the graph stays empty."""
    tape = Tape()
    with tape.no_grad():
        x = tape.input((TOKENS, WIDE), "bfloat16", "x", requires_grad=True)
        F.activation(x, "silu")
    assert tape.nodes == []
    assert sum_up(tape.events).net == ACTIVATION


def test_a_fork_sums_its_gradients() -> None:
    """x + silu(x): the gradient of the sum and that of the branch meet at x, out of place."""
    tape = Tape()
    x = tape.input((TOKENS, WIDE), "bfloat16", "x", requires_grad=True)
    y = x + F.activation(x, "silu")
    leaf = x.node
    grad: list[Tensor | None] = [tape.input(y.shape, y.dtype, "dy")]
    edge = (y.node, y.index) if y.node is not None else None
    del x, y
    tape.backward(edge, grad)
    assert leaf is not None
    assert leaf.grads[0] is not None
    assert leaf.grads[0].storage is not None
    assert sum_up(tape.events).net == ACTIVATION


def test_autocast_copies_a_weight_once_and_an_input_each_time() -> None:
    """The cast weight is kept until autocast ends; each use casts the fp32 input anew (at::autocast::cached_cast)."""
    tape = Tape(autocast="bfloat16")
    x = tape.input((TOKENS, WIDE), "float32", "x", requires_grad=True)
    weight = tape.parameter("w", (NARROW, WIDE), "float32", trainable=True)
    begin = len(tape.events)
    outputs = [F.linear(x, F.cast_weight(weight, "w"), None, NARROW, "y") for _ in range(2)]
    assert sum_up(tape.events[begin:]).net == WEIGHT + 2 * ACTIVATION + 2 * OUTPUT
    assert len(outputs) == 2


@pytest.mark.parametrize("kept", [True, False])
def test_a_view_keeps_the_storage_alive(kept: bool) -> None:
    """Bytes die with the last tensor that shares them."""
    tape = Tape()
    x = tape.new((TOKENS, WIDE), "bfloat16", "x")
    views = [F.view(x, (Axis("flat", 70),))] if kept else []
    del x
    assert sum_up(tape.events).net == (ACTIVATION if kept else 0)
    assert len(views) == kept
