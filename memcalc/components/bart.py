"""BART (Lewis et al. 2019) and its relatives: an encoder and a decoder of the original transformer's layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.head import Head
from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm
from memcalc.components.t5 import Stack
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight

Places = Literal["own", "shared", "given", "buffer"]


@dataclass(frozen=True)
class BartEmbedding(Component):
    """The front of a stack: rows of the table that both stacks share, and of a table of positions of its own.

    Attributes:
        vocab, width: the table's axes.
        stack: whose front it is; the encoder's holds the table, the decoder's hands what the encoder gave to all layers behind it.
        positions: rows of the other table.
        first: the gradient of the shared table is born here, rather than added to one that is there.
        places: how rows of the other table are had: learned, looked up for each sequence by the encoder (``own``, BART) or for all at once
            (``shared``, Blenderbot); without gradient, for all at once (``given``, Pegasus and Marian); from a buffer (``buffer``, M2M-100).
        norm: on their sum.
        dropout: on what comes out.
    """

    vocab: Axis
    width: Axis
    stack: Stack
    positions: int
    first: bool = False
    places: Places = "own"
    norm: LayerNorm | None = None
    dropout: float = 0.0

    @property
    def returns(self) -> tuple[str, ...]:
        """The encoder's output stands beside the logits in what the model returns."""
        return ("encoder_hidden_states",)

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (vocab, width), in the encoder's; ``embed_positions/weight`` (positions, width)."""
        if self.stack == "encoder":
            yield self.table
        if self.places != "buffer":
            yield self.position_table

    @property
    def table(self) -> Weight:
        """The table, wherever it is held."""
        return Weight("weight", (self.vocab, self.width), (("vocab", 0),))

    @property
    def position_table(self) -> Weight:
        """This stack's positions."""
        return Weight("embed_positions/weight", (Axis("positions", self.positions), self.width), frozen=self.places == "given")


@dataclass(frozen=True)
class BartAttention(Component):
    """Multi-head attention.

    Attributes:
        num_heads, head_dim: of the whole model.
        kind: over the encoder's tokens, over the decoder's earlier ones, or from the decoder's over the encoder's.
        q, k, v, o: the projections.
        dropout: on the probabilities.
    """

    num_heads: int
    head_dim: int
    kind: Literal["encoder", "decoder", "cross"]
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    dropout: float = 0.0


@dataclass(frozen=True)
class BartLayer(Component):
    """Residual branches: attention, in the decoder attention to the encoder, and a network of two linear layers.

    Attributes:
        self_attn, self_attn_layer_norm: of the stack itself.
        encoder_attn, encoder_attn_layer_norm: from the decoder to the encoder.
        fc1, fc2, final_layer_norm: the network.
        activation: Hugging Face's name.
        pre_norm: each norm stands before its branch, rather than on the sum after it (mBART, Pegasus).
        dropout: on what each branch adds.
        activation_dropout: inside the network.
    """

    self_attn: BartAttention
    self_attn_layer_norm: LayerNorm
    encoder_attn: BartAttention | None
    encoder_attn_layer_norm: LayerNorm | None
    fc1: Linear
    fc2: Linear
    final_layer_norm: LayerNorm
    activation: str = "gelu"
    pre_norm: bool = False
    dropout: float = 0.0
    activation_dropout: float = 0.0


@dataclass(frozen=True)
class BartHead(Head):
    """A head that adds a constant to each logit, and whose loss is taken of them as they are, of all tokens of the decoder."""
