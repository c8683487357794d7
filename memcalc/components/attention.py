"""Attention: queries, keys and values from one input, with as many KV heads as the model has."""

from __future__ import annotations

from typing import Literal

from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su et al. 2021).

    Attributes:
        dim: how much of each head is turned.
        style: ``half`` turns the two halves against each other (Llama), ``interleaved`` neighbouring pairs (Cohere); ``repeated`` does so
            too, and spreads the angles over the pairs in each layer anew (GLM, Helium, ERNIE); ``tabled`` likewise, for each tensor
            anew, from a table that is a buffer (GPT-J); ``complex`` multiplies fp32 copies by complex angles (DeepSeek-V2, Llama 4);
            ``pairs`` turns two slices apart and joins them (DeepSeek-V3), ``halves`` likewise with angles that are made for one
            slice only (gpt-oss).
        precision: ``model`` turns in the dtype of the model; ``angles`` keeps the angles in fp32, so that products are, too (OLMo);
            ``products`` likewise, and casts each factor up first (ERNIE); ``all`` turns copies in fp32 (Cohere).
        sliced: the code cuts the turned part out even where it is all.
        inlined: the attention's own code does so, and has variables for the parts to its end (Phi, GPT-J), not a function of its own.
        name: which angles of the model; layers with windows may have their own (Gemma 3).
        planes: a position has three numbers, for time, height and width, and each turns a part of a head: ``joined`` part by part (Qwen 2-VL),
            ``interleaved`` (Qwen 3-VL), ``repeated`` part by part, for neighbouring pairs (GLM-4.1V). The angles are those of each sequence.
    """

    dim: int
    style: Literal["half", "interleaved", "repeated", "tabled", "complex", "pairs", "halves"] = "half"
    precision: Literal["model", "angles", "products", "all"] = "model"
    sliced: bool = False
    inlined: bool = False
    name: str = ""
    planes: Literal["", "joined", "interleaved", "repeated"] = ""


@dataclass(frozen=True)
class Attention(Component):
    """Multi-head, grouped-query or multi-query attention.

    Attributes:
        num_heads, num_kv_heads, head_dim: of the whole model (not cut).
        q, k, v: the projections; a fused one stands in `q` and the others are None.
        o: the output projection.
        q_norm, k_norm: norms of queries and keys, over each head or over the whole projection (their width says which).
        rotary: None for learned or ALiBi positions.
        window: keys that a query sees, None for all.
        softcap: scores are squashed by tanh (Gemma 2); only eager code does it.
        sinks: a learned score per head that takes part in the softmax (gpt-oss).
        causal: whether later keys are hidden.
        layout: how a fused projection holds queries, keys and values: ``split`` side by side (GPT-2), ``sliced`` likewise, cut out one by
            one (Phi-3), ``thirds`` likewise, taken apart at once (ModernBERT), ``per_head`` side by side in each head (GPT-NeoX),
            ``indexed`` likewise, cut out one by one (BLOOM, Persimmon), ``blocks`` side by side in each of four blocks (CodeGen),
            ``shared`` queries of all heads beside one key and one value (StarCoder 1).
        norm_after_rotary: queries and keys are turned before they are normalised (Hunyuan).
        scaled_query: queries are scaled where they are made, not their scores (OPT).
        scaled_key: keys are multiplied by a constant where they are made (Falcon-H1).
        softmax: ``fp32`` casts the scores up for it (Llama), ``model`` does not (GPT-2, BERT), ``scores`` computes them in fp32 (GPT-J).
        dropout: on the probabilities.
        clamped: queries, keys and values are clamped where they are made (OLMo, DBRX).
        tempered: queries are scaled by their position (Ministral 3; Llama 4 in fp32).
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    q: Linear
    k: Linear | None
    v: Linear | None
    o: Linear
    q_norm: RMSNorm | LayerNorm | None = None
    k_norm: RMSNorm | LayerNorm | None = None
    rotary: Rotary | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    causal: bool = True
    layout: Literal["split", "sliced", "thirds", "per_head", "indexed", "blocks", "shared"] = "split"
    norm_after_rotary: bool = False
    scaled_query: bool = False
    scaled_key: bool = False
    softmax: Literal["fp32", "model", "scores"] = "fp32"
    dropout: float = 0.0
    clamped: bool = False
    tempered: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """A window on both sides needs a mask once it is reached; those on one side are known from the model."""
        return (self.window,) if self.window is not None and not self.causal else ()

    @property
    def remembers(self) -> bool:
        """A cache holds keys and values of its own."""
        return self.causal
