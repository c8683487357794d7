"""Inputs that each layer has of its own: a table for all of them, and what a layer makes of its share (Gemma 3n, Gemma 4 E2B and E4B)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.linear import Linear
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight

INPUTS = "per_layer_inputs"
"""What layers share, (batch, seq, layers, small)."""


@dataclass(frozen=True)
class InputTables(Component):
    """The table of inputs for all layers, and their projection from the embeddings.

    Attributes:
        vocab: its rows.
        proj: hidden → all layers' inputs.
        norm: of each.
        in_place: what is projected is scaled in its own place (Gemma 3n).
        outer: who calls the text model holds the rows, and with images also a copy of the embeddings without them (Gemma 4).
    """

    vocab: Axis
    proj: Linear
    norm: RMSNorm
    in_place: bool = False
    outer: Literal["", "rows", "rows and embeddings"] = ""

    def own_weights(self) -> Iterator[Weight]:
        """``embed_tokens_per_layer/weight`` (vocab, layers · small)."""
        yield Weight("embed_tokens_per_layer/weight", (self.vocab, self.proj.outputs), (("vocab", 0),))

    def children(self) -> Iterator[tuple[str, Component]]:
        """The projection and its norm."""
        yield "per_layer_model_projection", self.proj
        yield "per_layer_projection_norm", self.norm


@dataclass(frozen=True)
class LayerInputs(Component):
    """What a layer adds at its end from its share of them.

    Attributes:
        per_layer_input_gate, per_layer_projection: hidden → small, small → hidden.
        norm: of what comes back.
        activation: of the gate.
    """

    per_layer_input_gate: Linear
    per_layer_projection: Linear
    norm: RMSNorm
    activation: str

    def children(self) -> Iterator[tuple[str, Component]]:
        """As the layer names them."""
        yield "per_layer_input_gate", self.per_layer_input_gate
        yield "per_layer_projection", self.per_layer_projection
        yield "post_per_layer_input_norm", self.norm
