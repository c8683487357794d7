"""Attention of models whose code scores queries and keys in steps of its own."""

from __future__ import annotations

from memcalc.components.attention import Attention
from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class BloomAttention(Attention):
    """Heads with an ALiBi bias (Press et al. 2021) in the product of queries and keys itself."""


@dataclass(frozen=True)
class MptAttention(Attention):
    """Heads with an ALiBi bias added to their scores."""


@dataclass(frozen=True)
class BaichuanAttention(Attention):
    """Heads with an ALiBi bias in the mask of a fused kernel, which runs in training only (Baichuan 13B)."""


@dataclass(frozen=True)
class GPTNeoAttention(Attention):
    """Heads whose scores are computed in fp32 and cut by a buffer of the layer's own, which also holds the local layers' window."""


@dataclass(frozen=True)
class FalconAttention(Attention):
    """Falcon's heads: one KV head for all (7B), one for each group beside its queries (40B), or one for each (RW).

    Attributes:
        grouped: keys and values stand beside the queries of their group (``new_decoder_architecture``), and are copied for each of them.
        alibi: positions as a bias instead of rotary ones.
    """

    grouped: bool = False
    alibi: bool = False
