"""What each activation adds to a network's saved tensors."""

from __future__ import annotations

import pytest

from memcalc.components import MLP, GatedMLP, Linear
from memcalc.errors import UnknownNameError
from memcalc.specs.model import Axis
from tests.code.transformers.recorded import TOKENS, record

H, WIDE = Axis("hidden_size", 8), Axis("intermediate_size", 12)
OUTPUT = TOKENS * 8 * 2
ONE = TOKENS * 12 * 2
"""Bytes of one tensor as wide as the intermediate size."""


@pytest.mark.parametrize(
    ("activation", "tensors"),
    [
        ("relu", 1),  # its result is all that it saves, and the next layer's input
        ("gelu", 2),  # input and result
        ("gelu_pytorch_tanh", 2),
        ("silu", 2),
        ("bloom_gelu", 2),
        ("relu2", 2),  # relu, and its square
        ("quick_gelu", 3),  # input, sigmoid, product
        ("gelu_new", 5),  # input, its half, tanh, 1 + tanh, product
        ("gelu_fast", 8),  # and both scaled inputs, and 1 + square, of the argument
    ],
)
def test_saved_tensors(activation: str, tensors: int) -> None:
    network = MLP(Linear("up", H, WIDE), Linear("down", WIDE, H), activation)
    assert record(network, 8).saved_bytes == tensors * ONE + OUTPUT


def test_a_fused_gate_saves_what_two_projections_do() -> None:
    """Gate and up (one tensor or two), the activated gate, the product."""
    apart = GatedMLP(Linear("gate", H, WIDE), Linear("up", H, WIDE), Linear("down", WIDE, H))
    fused = GatedMLP(Linear("gate_up", H, Axis("2 * intermediate_size", 24)), None, Linear("down", WIDE, H))
    assert record(apart, 8).saved_bytes == record(fused, 8).saved_bytes == 4 * ONE + OUTPUT


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown activation 'gulu'; did you mean"):
        record(MLP(Linear("up", H, WIDE), Linear("down", WIDE, H), "gulu"), 8)
