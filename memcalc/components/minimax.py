"""What MiniMax-Text-01 has of its own: lightning attention in most layers, and branches added to what was normalised."""

from __future__ import annotations

from memcalc.components.layer import DecoderLayer
from memcalc.components.linear import Linear
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class MiniMaxLayer(DecoderLayer):
    """Each branch and what it is added to, the normalised input, are multiplied by constants."""


@dataclass(frozen=True)
class LightningAttention(Component):
    """Linear attention in blocks (Qin et al. 2024): scores within a block, a decaying state between blocks.

    Attributes:
        num_heads, head_dim: of queries, keys and values alike.
        block_size: tokens of a block.
        qkv_proj: hidden → all three.
        norm: over all heads.
        output_gate: hidden → a gate on the normalised output.
        out_proj: heads → hidden.
        activation: on queries, keys and values.
    """

    num_heads: int
    head_dim: int
    block_size: int
    qkv_proj: Linear
    norm: RMSNorm
    output_gate: Linear
    out_proj: Linear
    activation: str = "silu"
