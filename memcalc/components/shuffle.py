"""Squares of neighbouring patches put side by side in one token, and what leads from there to the text's width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class PixelShuffle(Component):
    """Fewer, wider tokens through one or two linear layers (Llama 4, InternVL, Idefics 3).

    Attributes:
        linears: the layers, by their paths.
        activations: what follows each of them, empty for nothing.
        tokens: of an image, after it.
        norm: before the first layer.
        norm_name: its module.
        drops: which end of the tower's sequence is a class token, which is dropped.
        held: the tower's output holds the features.
    """

    linears: tuple[Linear, ...]
    activations: tuple[str, ...]
    tokens: int
    norm: LayerNorm | None = None
    norm_name: str = "layer_norm"
    drops: Literal["", "first", "last"] = ""
    held: bool = False

    def children(self) -> Iterator[tuple[str, Component]]:
        """The norm, the layers."""
        if self.norm is not None:
            yield self.norm_name, self.norm
        yield from ((linear.name, linear) for linear in self.linears)
