"""Virtual tokens that are trained before a frozen model, and what makes them (PEFT's prompt encoders)."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class PromptEncoder(Component):
    """A table of virtual tokens, and a small network on its rows where there is one.

    Attributes:
        tokens: virtual tokens.
        width: of a row of the table.
        dtype: what it is held in.
        layers: the network's linear layers (peft/tuners/p_tuning/model.py, prefix_tuning/model.py).
        activation: between them.
        num_tensors: keys and values of so many layers come out in one row (prefix tuning); 0: embeddings do.
        heads, head_dim: of such a key or value.
    """

    tokens: Axis
    width: Axis
    dtype: str = "float32"
    layers: tuple[Linear, ...] = ()
    activation: str = "relu"
    num_tensors: int = 0
    heads: int = 0
    head_dim: int = 0

    @property
    def module_name(self) -> str:
        """As PEFT's model has it."""
        return "prompt_encoder/default"

    def own_weights(self) -> Iterator[Weight]:
        """``embedding/weight`` (tokens, width)."""
        yield Weight("embedding/weight", (self.tokens, self.width), dtype=self.dtype)
