"""Attention: queries, keys and values from one input, with as many KV heads as the model has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.specs.model import Component


@dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su et al. 2021).

    Attributes:
        dim: how much of each head is turned.
        style: ``half`` turns the two halves against each other (Llama), ``interleaved`` neighbouring pairs (GPT-J, Cohere).
    """

    dim: int
    style: Literal["half", "interleaved"] = "half"


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
