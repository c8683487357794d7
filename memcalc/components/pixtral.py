"""Pixtral's tower: patches of all images in one row, which a mask keeps apart; squares of them merged into tokens."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.components.linear import Linear
from memcalc.components.mlp import MLP
from memcalc.components.norm import RMSNorm
from memcalc.components.vision import PatchConv
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class PixtralPatches(Component):
    """The front: a convolution, a norm; angles on two axes and the mask of images are made here for all layers.

    Attributes:
        conv: pixels → patches.
        norm: of the patches.
        head_dim: of the angles.
    """

    conv: PatchConv
    norm: RMSNorm
    head_dim: int

    def children(self) -> Iterator[tuple[str, Component]]:
        """As the model names them."""
        yield self.conv.name, self.conv
        yield "ln_pre", self.norm


@dataclass(frozen=True)
class PixtralAttention(Attention):
    """Attention over the patches of all images, those of other images masked."""


@dataclass(frozen=True)
class PixtralMerger(Component):
    """Squares of patches side by side, through one layer, then through two.

    Attributes:
        norm: of the patches.
        merging: all channels of a square → hidden.
        mlp: hidden → the text's width.
        side: of a square, in patches.
    """

    norm: RMSNorm
    merging: Linear
    mlp: MLP
    side: int

    def children(self) -> Iterator[tuple[str, Component]]:
        """The norm, the merging layer, the two others."""
        yield "norm", self.norm
        yield self.merging.name, self.merging
        yield self.mlp.up.name, self.mlp.up
        yield self.mlp.down.name, self.mlp.down
