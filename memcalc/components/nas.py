"""Layers of which an architecture search has left a part."""

from __future__ import annotations

from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class SearchedLayer(Component):
    """A layer without attention: a network in a residual branch, or nothing at all (DeciLM).

    Attributes:
        post_attention_layernorm: before the network.
        mlp: the network.
    """

    post_attention_layernorm: RMSNorm | None
    mlp: Component | None
