"""T5 (Raffel et al. 2020): an encoder and a decoder whose positions are learned distances, added to the scores of all layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.head import Head
from memcalc.components.linear import Linear
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight

Stack = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class T5Norm(RMSNorm):
    """A root-mean-square norm that multiplies its input as it came by the reciprocal in fp32."""


@dataclass(frozen=True)
class T5Embedding(Component):
    """The front of a stack: rows of the table that both stacks share.

    Attributes:
        vocab, width: the table's axes.
        stack: whose front it is; the encoder's holds the table, the decoder's hands what the encoder gave to all layers behind it.
        first: the gradient of the table is born here, rather than added to one that is there.
        dropout: on what comes out.
    """

    vocab: Axis
    width: Axis
    stack: Stack
    first: bool = False
    dropout: float = 0.0

    @property
    def returns(self) -> tuple[str, ...]:
        """The encoder's output stands beside the logits in what the model returns."""
        return ("encoder_hidden_states",)

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (vocab, width), in the encoder's."""
        if self.stack == "encoder":
            yield self.table

    @property
    def table(self) -> Weight:
        """The table, wherever it is held."""
        return Weight("weight", (self.vocab, self.width), (("vocab", 0),))


@dataclass(frozen=True)
class T5Attention(Component):
    """Heads with a bias on their scores.

    Attributes:
        num_heads, head_dim: of the whole model.
        kind: over the encoder's tokens, over the decoder's earlier ones, or from the decoder's over the encoder's.
        q, k, v, o: the projections.
        buckets: distances that are told apart by this layer's table, which the layers behind it use too; 0: it has none.
        dropout: on the probabilities.
        apart: each layer has its own table, or in attention to the encoder its own zeros (UMT5).
    """

    num_heads: int
    head_dim: int
    kind: Literal["encoder", "decoder", "cross"]
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    buckets: int = 0
    dropout: float = 0.0
    apart: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """``relative_attention_bias/weight`` (buckets, heads)."""
        if self.buckets:
            yield Weight("relative_attention_bias/weight", (Axis("relative_attention_num_buckets", self.buckets), Axis("num_heads", self.num_heads)))


@dataclass(frozen=True)
class T5MLP(Component):
    """``wo(dropout(act(wi(x))))``, or with a gate ``wo(dropout(act(wi_0(x)) * wi_1(x)))``.

    Attributes:
        wi: hidden → inner.
        gate: what the activation's result is multiplied by, hidden → inner.
        wo: inner → hidden.
        activation: Hugging Face's name.
        dropout: before `wo`.
    """

    wi: Linear
    gate: Linear | None
    wo: Linear
    activation: str = "relu"
    dropout: float = 0.0


@dataclass(frozen=True)
class T5Layer(Component):
    """Residual branches, each with a norm before it: attention, in the decoder attention to the encoder, and a network.

    Attributes:
        layer_norm, attention: of the stack itself.
        cross_norm, cross_attention: from the decoder to the encoder.
        ff_norm, ff: the network.
        dropout: on what each branch adds.
    """

    layer_norm: T5Norm
    attention: T5Attention
    cross_norm: T5Norm | None
    cross_attention: T5Attention | None
    ff_norm: T5Norm
    ff: T5MLP
    dropout: float = 0.0

    def children(self) -> Iterator[tuple[str, Component]]:
        """Its parts under their branches' names."""
        names = {"cross_norm": "cross_layer_norm", "ff_norm": "ff/layer_norm", "ff": "ff/DenseReluDense"}
        yield from ((names.get(name, name), child) for name, child in super().children())


@dataclass(frozen=True)
class T5FinalNorm(Component):
    """The norm at the end of a stack, and dropout after it."""

    norm: T5Norm
    dropout: float = 0.0

    def children(self) -> Iterator[tuple[str, Component]]:
        """The norm, which stands in the stack."""
        yield "final_layer_norm", self.norm


@dataclass(frozen=True)
class T5Head(Head):
    """A head whose loss is taken of the logits as they are, of all tokens of the decoder."""
