"""Both ends of a language model: the embedding table, and the head with its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memcalc.components.attention import Rotary
from memcalc.components.linear import Linear
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Embedding(Component):
    """Token table, and learned positions where there are any; rotary angles are made here once for all layers.

    Attributes:
        vocab, width: the table's axes.
        positions: rows of the learned position table, 0 for none.
        rotary: the angles that the layers share.
        scaled: multiplied by the root of the width (Gemma).
        tied: the head uses this table too, so its gradient is there before this block runs back.
    """

    vocab: Axis
    width: Axis
    positions: int = 0
    rotary: Rotary | None = None
    scaled: bool = False
    tied: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (vocab, width) and ``position/weight``."""
        yield Weight("weight", (self.vocab, self.width), (("vocab", 0),))
        if self.positions:
            yield Weight("position/weight", (Axis("positions", self.positions), self.width))


@dataclass(frozen=True)
class Head(Component):
    """The projection to the vocabulary, and the loss on it.

    Attributes:
        proj: hidden → vocabulary.
        tied: its weight is the embedding's table, counted there.
        softcap: logits are squashed by tanh (Gemma 2).
        scaled: logits are multiplied by a constant (Cohere, Granite).
    """

    proj: Linear
    tied: bool = False
    softcap: float | None = None
    scaled: bool = False

    def weights(self, prefix: str = "") -> Iterator[tuple[str, Weight]]:
        """Those of the projection; of a tied one its bias only."""
        for path, weight in super().weights(prefix):
            if not (self.tied and weight.name == "weight"):
                yield path, weight
