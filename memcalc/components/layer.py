"""Transformer layers: a mixer and a feed-forward network, in the residual structures that there are."""

from __future__ import annotations

from typing import Literal

from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component

Norm = RMSNorm | LayerNorm


@dataclass(frozen=True)
class DecoderLayer(Component):
    """Mixer, then network, each in a residual branch of its own, normalised before, after or both.

    Attributes:
        input_layernorm: before the mixer (None where the model only normalises what a branch gives).
        self_attn: the mixer: attention, or a recurrent one.
        post_attention_layernorm: before the feed-forward network.
        mlp: the feed-forward network, or None.
        post_mixer_norm: on the mixer's output, before it is added (Gemma 2, OLMo 2).
        post_mlp_norm: likewise for the feed-forward network.
        dropout: on what each branch adds.
        scaled: what each branch adds is multiplied by a constant (Granite).
        residual_from_norm: the branches are added to what the norms before them gave (BLOOM's option).
        holds: what its code has variables of their own for to its end: the mixer's output (GPT-2), or what it reads, too (StableLM).
        inlined: its code runs the network's two linear layers itself, so that their input goes before their output is there (OPT).
        returns_probabilities: the model holds those of eager attention until the next layer is through (BLOOM, GPT-Neo, Falcon, MPT).
    """

    input_layernorm: Norm | None
    self_attn: Component
    post_attention_layernorm: Norm | None
    mlp: Component | None
    post_mixer_norm: Norm | None = None
    post_mlp_norm: Norm | None = None
    dropout: float = 0.0
    scaled: bool = False
    residual_from_norm: bool = False
    holds: Literal["nothing", "mixed", "normed and mixed"] = "nothing"
    inlined: bool = False
    returns_probabilities: bool = False


@dataclass(frozen=True)
class ParallelLayer(Component):
    """Mixer and network both read the layer's input, and one sum takes both (GPT-J, GPT-NeoX, Falcon, Cohere).

    Attributes:
        input_layernorm: before the mixer, and before the network too unless that has its own.
        self_attn: the mixer.
        mlp: the feed-forward network.
        mlp_layernorm: the network's own norm (GPT-NeoX, Falcon 40B).
        dropout: on what each branch adds.
        returns_probabilities: the model holds those of eager attention until the next layer is through (Falcon).
    """

    input_layernorm: Norm
    self_attn: Component
    mlp: Component
    mlp_layernorm: Norm | None = None
    dropout: float = 0.0
    returns_probabilities: bool = False


@dataclass(frozen=True)
class PostNormLayer(Component):
    """Mixer, then network; each branch is added to its input, and the sum is normalised (BERT, OPT 350M).

    Attributes:
        self_attn: the mixer.
        attention_norm: on the sum after it.
        mlp: the feed-forward network.
        output_norm: on the sum after that.
        dropout: on what each branch adds.
        holds_inner: its code runs the network's two linear layers itself, and has a variable for what lies between them (BERT).
    """

    self_attn: Component
    attention_norm: Norm
    mlp: Component
    output_norm: Norm
    dropout: float = 0.0
    holds_inner: bool = False
