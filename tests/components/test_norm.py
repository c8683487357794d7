"""Norms: names and shapes of their weights."""

from __future__ import annotations

from memcalc.components import LayerNorm, RMSNorm
from memcalc.specs.model import Axis, Component

H = Axis("hidden_size", 8)


def shapes(component: Component) -> dict[str, tuple[int, ...]]:
    """Path and shape of each weight."""
    return {path: tuple(axis.size for axis in weight.shape) for path, weight in component.weights()}


def test_norms_have_the_weights_of_their_style() -> None:
    assert shapes(RMSNorm(H, "gemma")) == {"weight": (8,)}
    assert shapes(RMSNorm(H, "unscaled")) == shapes(LayerNorm(H, style="upcast")) == {}
    assert shapes(LayerNorm(H, bias=False)) == {"weight": (8,)}
    assert shapes(LayerNorm(H, bias=False, heads=Axis("heads", 3))) == {"weight": (3, 8)}
