"""Multi-head latent attention (DeepSeek-AI 2024): keys and values come from a latent that is all a cache has to hold; with an indexer, sparse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.attention import Rotary
from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component, Weight


@dataclass(frozen=True)
class Indexer(Component):
    """Small heads that pick the keys which each query attends to (DeepSeek-V3.2). It runs without gradient.

    Attributes:
        num_heads, head_dim: of the indexer.
        rope_dim: how much of each head is turned.
        top_k: keys per query.
        style: how it is turned: ``half``, or ``pairs`` (GLM-5).
        wq_b: the query latent → its heads.
        wk: hidden → one key.
        k_norm: on that key.
        weights_proj: hidden → a weight for each head.
    """

    num_heads: int
    head_dim: int
    rope_dim: int
    top_k: int
    wq_b: Linear
    wk: Linear
    k_norm: LayerNorm
    weights_proj: Linear
    style: Literal["half", "pairs"] = "half"

    def weights(self, prefix: str = "") -> Iterator[tuple[str, Weight]]:
        """Those of its parts, none of which a gradient reaches."""
        yield from ((path, weight._replace(frozen=True)) for path, weight in super().weights(prefix))


@dataclass(frozen=True)
class LatentAttention(Component):
    """Queries, keys and values by way of latents.

    Attributes:
        num_heads: of the whole model (not cut).
        nope_dim, rope_dim: the parts of a query or key head without and with rotary positions.
        v_dim: of a value head.
        q_proj: hidden → queries, where there is no query latent.
        q_a_proj, q_a_layernorm, q_b_proj: hidden → latent, its norm, latent → queries.
        kv_a_proj: hidden → latent and the one rotary key that all heads share.
        kv_a_layernorm: on the latent.
        kv_b_proj: latent → keys without position, and values.
        o_proj: values → hidden.
        rotary: of the rotary parts: ``complex`` products (V2), ``pairs`` of even and odd elements (V3), or halves.
        indexer: picks the keys that a query sees.
        follows: the model's forward holds so many keys of each query that the layer before has picked, or has had picked; this one sees them
            where it has no indexer of its own (GLM-5). 0: none does.
        fresh: that layer has picked them itself; under checkpoints, others are the same tensor that is held already.
        tempered: queries are scaled by their position (Mistral Small 4).
        window, causal: as for any attention; every latent attention sees all earlier keys.
    """

    num_heads: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    q_proj: Linear | None
    q_a_proj: Linear | None
    q_a_layernorm: RMSNorm | None
    q_b_proj: Linear | None
    kv_a_proj: Linear
    kv_a_layernorm: RMSNorm
    kv_b_proj: Linear
    o_proj: Linear
    rotary: Rotary
    indexer: Indexer | None = None
    follows: int = 0
    fresh: bool = False
    tempered: bool = False
    window: int | None = None
    causal: bool = True
