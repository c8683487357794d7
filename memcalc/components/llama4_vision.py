"""Llama 4's tower: patches cut out by the model, a class token behind them."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Llama4Patches(Component):
    """The front of the tower.

    Attributes:
        proj: pixels of a patch → hidden.
        patches: of an image.
        norm: on the sum.
        head_dim: of the angles that all layers share, which are a buffer.
    """

    proj: Linear
    patches: int
    norm: LayerNorm
    head_dim: int

    def own_weights(self) -> Iterator[Weight]:
        """``class_embedding`` (hidden,), ``positional_embedding_vlm`` (patches + 1, hidden)."""
        yield Weight("class_embedding", (self.proj.outputs,))
        yield Weight("positional_embedding_vlm", (Axis("positions", self.patches + 1), self.proj.outputs))

    def children(self) -> Iterator[tuple[str, Component]]:
        """The linear layer, which stands in a module of its own, and the norm."""
        yield self.proj.name, self.proj
        yield "layernorm_pre", self.norm
