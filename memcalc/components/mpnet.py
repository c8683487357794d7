"""What MPNet has of its own: a bias for distances that all layers add to their scores (Song et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class DistanceBias(Component):
    """The table of distances, and what it adds to the scores of each pair of tokens.

    Attributes:
        buckets: distances that are told apart.
        num_heads: of the attention.
    """

    buckets: int
    num_heads: int

    @property
    def module_name(self) -> str:
        """Where it stands."""
        return "encoder"

    def own_weights(self) -> Iterator[Weight]:
        """``relative_attention_bias/weight`` (buckets, heads)."""
        shape = (Axis("relative_attention_num_buckets", self.buckets), Axis("num_attention_heads", self.num_heads))
        yield Weight("relative_attention_bias/weight", shape)


@dataclass(frozen=True)
class BiasedAttention(Attention):
    """Heads whose scores get a bias that all layers share."""
