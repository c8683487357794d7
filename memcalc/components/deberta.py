"""What DeBERTa 2 and 3 have of their own: scores that take the distance between tokens into account (He et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Distances(Component):
    """The mask that layers share, and the table of distances with its norm.

    Attributes:
        hidden: the table's width.
        rows: of it, 0 for none.
        norm: of them.
        bucketed: distances fall into buckets.
    """

    hidden: Axis
    rows: int = 0
    norm: LayerNorm | None = None
    bucketed: bool = False

    @property
    def module_name(self) -> str:
        """Where both stand."""
        return "encoder"

    def own_weights(self) -> Iterator[Weight]:
        """``rel_embeddings/weight`` (rows, hidden)."""
        if self.rows:
            yield Weight("rel_embeddings/weight", (Axis("2 * position_buckets", self.rows), self.hidden))

    def children(self) -> Iterator[tuple[str, Component]]:
        """The norm."""
        if self.norm is not None:
            yield "LayerNorm", self.norm


@dataclass(frozen=True)
class DisentangledAttention(Component):
    """Heads whose scores are summed of content with content, content with distance, and distance with content.

    Attributes:
        num_heads, head_dim: of the whole model.
        query_proj, key_proj, value_proj, o: the projections.
        pos_key_proj, pos_query_proj: of distances, where tokens' own are not taken for them.
        to_position, from_position: content with distance, distance with content.
        rows: of the table of distances.
        dropout: on probabilities.
        table_dropout: on the table.
    """

    num_heads: int
    head_dim: int
    query_proj: Linear
    key_proj: Linear
    value_proj: Linear
    o: Linear
    pos_key_proj: Linear | None = None
    pos_query_proj: Linear | None = None
    to_position: bool = False
    from_position: bool = False
    rows: int = 0
    dropout: float = 0.0
    table_dropout: float = 0.0
