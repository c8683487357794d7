"""Gemma 4's tower: patches that are cut out already, positions on two axes, layers as the text's, an average over neighbouring patches."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.gemma4 import Gemma4Attention, Gemma4Layer, Gemma4Norm
from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Gemma4Patches(Component):
    """The front: one linear layer, and for each patch a row of a table for its column and one for its row.

    Attributes:
        proj: pixels → hidden.
        positions: rows of each of the two tables.
        head_dim: of the angles that all layers share.
    """

    proj: Linear
    positions: int
    head_dim: int

    def own_weights(self) -> Iterator[Weight]:
        """``position_embedding_table`` (2, positions, hidden)."""
        yield Weight("position_embedding_table", (Axis("2", 2), Axis("position_embedding_size", self.positions), self.proj.outputs))


@dataclass(frozen=True)
class Gemma4VisionAttention(Gemma4Attention):
    """Each half of a head is turned by a position of its own; all patches of an image see each other."""


@dataclass(frozen=True)
class Gemma4VisionLayer(Gemma4Layer):
    """A layer of the tower: nothing stands beside its network, and nothing is scaled at its end."""


@dataclass(frozen=True)
class Gemma4Pool(Component):
    """Each square of patches averaged by a product in fp32, standardised, normalised, through one linear layer.

    Attributes:
        norm: without weight.
        proj: hidden → the text's width.
        side: of a square, in patches.
        standardised: by two buffers.
    """

    norm: Gemma4Norm
    proj: Linear
    side: int
    standardised: bool
