"""What Llama 4 has of its own: layers that hold what their attention gave, heads without positions, experts that all see every token."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.components.layer import DecoderLayer
from memcalc.components.moe import MoE
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class Llama4Layer(DecoderLayer):
    """A pre-norm layer, whose network is its ``feed_forward``."""

    def children(self) -> Iterator[tuple[str, Component]]:
        """Its parts by the names that they have in the model's code."""
        yield from (("feed_forward" if name == "mlp" else name, child) for name, child in super().children())


@dataclass(frozen=True)
class Llama4Attention(Attention):
    """Grouped-query attention; `window` is the size of the chunks that tokens see.

    Attributes:
        l2_norm: on queries and keys, without weights.
    """

    l2_norm: RMSNorm | None = None


@dataclass(frozen=True)
class InputScaledMoE(MoE):
    """Experts whose input is scaled by the router: each of them runs on every token, most of which its router has scaled to nothing."""
