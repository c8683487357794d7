"""Residual structures: what dropout and the order of norms add."""

from __future__ import annotations

import pytest

from memcalc.components import MLP, DecoderLayer, LayerNorm, Linear, ParallelLayer, PostNormLayer
from memcalc.specs.model import Axis, Component
from tests.code.transformers.recorded import TOKENS, record

H, WIDE = Axis("hidden_size", 8), Axis("intermediate_size", 12)
NORM = LayerNorm(H)
MIXER = Linear("mixer", H, H)
NETWORK = MLP(Linear("up", H, WIDE), Linear("down", WIDE, H), "relu")


@pytest.mark.parametrize(
    ("plain", "dropped"),
    [
        (DecoderLayer(NORM, MIXER, NORM, NETWORK), DecoderLayer(NORM, MIXER, NORM, NETWORK, dropout=0.1)),
        (ParallelLayer(NORM, MIXER, NETWORK), ParallelLayer(NORM, MIXER, NETWORK, dropout=0.1)),
        (PostNormLayer(MIXER, NORM, NETWORK, NORM), PostNormLayer(MIXER, NORM, NETWORK, NORM, dropout=0.1)),
    ],
    ids=["decoder", "parallel", "post-norm"],
)
def test_dropout_keeps_a_byte_for_each_element_of_both_branches(plain: Component, dropped: Component) -> None:
    """The mask of a GPU's fused kernel (aten, native_dropout)."""
    assert record(dropped, 8).saved_bytes - record(plain, 8).saved_bytes == 2 * TOKENS * 8


def test_a_parallel_layer_normalises_once() -> None:
    """One output and its statistics instead of two, and no sum between the branches."""
    one, two = ParallelLayer(NORM, MIXER, NETWORK), ParallelLayer(NORM, MIXER, NETWORK, mlp_layernorm=NORM)
    assert record(two, 8).saved_bytes - record(one, 8).saved_bytes == TOKENS * (2 * 8 + 2 + 2)


def test_a_constant_on_the_branches_saves_nothing() -> None:
    """Granite's residual multiplier."""
    plain, scaled = DecoderLayer(NORM, MIXER, NORM, NETWORK), DecoderLayer(NORM, MIXER, NORM, NETWORK, scaled=True)
    assert record(plain, 8).saved_bytes == record(scaled, 8).saved_bytes


def test_a_residual_from_the_norm_drops_the_layers_input() -> None:
    """BLOOM's option: nothing needs the input itself but the norm, which saves it either way."""
    plain, other = DecoderLayer(NORM, MIXER, NORM, NETWORK), DecoderLayer(NORM, MIXER, NORM, NETWORK, residual_from_norm=True)
    assert record(plain, 8).saved_bytes == record(other, 8).saved_bytes
