"""Llama 3.2 Vision's layers of cross-attention."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.components.mlp import GatedMLP
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class CrossLayer(Component):
    """Attention to the tokens of images, then a network, each behind a gate; where there are no images the layer is passed by.

    Attributes:
        input_layernorm: before the attention.
        cross_attn: queries from the text, keys and values from the images.
        post_attention_layernorm: before the network.
        mlp: the network.
    """

    input_layernorm: RMSNorm
    cross_attn: Attention
    post_attention_layernorm: RMSNorm
    mlp: GatedMLP

    @property
    def needs_images(self) -> bool:
        """It is passed by without them."""
        return True

    def own_weights(self) -> Iterator[Weight]:
        """``cross_attn_attn_gate``, ``cross_attn_mlp_gate``: a number each."""
        yield Weight("cross_attn_attn_gate", (Axis("1", 1),))
        yield Weight("cross_attn_mlp_gate", (Axis("1", 1),))
