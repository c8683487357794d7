"""Heads: which weights are theirs."""

from __future__ import annotations

from memcalc.components import Head, LayerNorm, Linear, MaskedHead
from memcalc.specs.model import Axis, Component

H, VOCAB = Axis("hidden_size", 8), Axis("vocab_size", 30)


def shapes(component: Component) -> dict[str, tuple[int, ...]]:
    """Path and shape of each weight."""
    return {path: tuple(axis.size for axis in weight.shape) for path, weight in component.weights()}


def test_tied_heads_leave_the_table_to_the_embedding() -> None:
    """Their biases are their own; BERT has one that nothing uses when the table is not shared."""
    proj = Linear("decoder", H, VOCAB, bias=True)
    assert shapes(Head(proj, tied=True)) == {"decoder/bias": (30,)}
    masked = {tied: shapes(MaskedHead(Linear("dense", H, H, bias=True), LayerNorm(H), proj, tied=tied, loose_bias=not tied)) for tied in (True, False)}
    assert masked[True] == {"dense/weight": (8, 8), "dense/bias": (8,), "norm/weight": (8,), "norm/bias": (8,), "decoder/bias": (30,)}
    assert masked[False] == {"bias": (30,), **masked[True], "decoder/weight": (30, 8)}
