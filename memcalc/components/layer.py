"""A transformer layer: a mixer and a feed-forward network, each in a residual branch, normalised before, after or both."""

from __future__ import annotations

from dataclasses import dataclass

from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.specs.model import Component

Norm = RMSNorm | LayerNorm


@dataclass(frozen=True)
class DecoderLayer(Component):
    """One layer.

    Attributes:
        input_layernorm: before the mixer (None in post-norm models).
        self_attn: the mixer: attention, or a recurrent one.
        post_attention_layernorm: before the feed-forward network in a pre-norm layer.
        mlp: the feed-forward network, or None.
        post_mixer_norm: on the mixer's output, before it is added (Gemma 2, OLMo 2).
        post_mlp_norm: likewise for the feed-forward network.
        parallel: mixer and network read the same input and are added together (GPT-J, Falcon, Cohere).
    """

    input_layernorm: Norm | None
    self_attn: Component
    post_attention_layernorm: Norm | None
    mlp: Component | None
    post_mixer_norm: Norm | None = None
    post_mlp_norm: Norm | None = None
    parallel: bool = False
