"""Layers of InternVL's tower: what each branch adds is scaled channel by channel."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.components.mlp import MLP
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component, Weight


@dataclass(frozen=True)
class ScaledLayer(Component):
    """A pre-norm layer whose branches are scaled by learned vectors before they are added.

    Attributes:
        norm: of both branches.
        attention, mlp: the branches.
    """

    norm: LayerNorm | RMSNorm
    attention: Attention
    mlp: MLP

    def own_weights(self) -> Iterator[Weight]:
        """``lambda_1`` and ``lambda_2`` (hidden,)."""
        yield Weight("lambda_1", (self.norm.width,))
        yield Weight("lambda_2", (self.norm.width,))

    def children(self) -> Iterator[tuple[str, Component]]:
        """In the order in which they run."""
        yield "layernorm_before", self.norm
        yield "attention", self.attention
        yield "layernorm_after", self.norm
        yield "mlp", self.mlp
