"""What Gemma 3n has of its own: several streams side by side (AltUp, Baykal et al. 2023), low-rank branches (LAuReL), sparse gates."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.gemma4 import Gemma4Attention, Gemma4Norm
from memcalc.components.layer_inputs import LayerInputs
from memcalc.components.linear import Linear
from memcalc.components.mlp import GatedMLP
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class SpreadStreams(Component):
    """The first stream as it is, the others projections of it with its magnitude, stacked.

    Attributes:
        altup_projections: hidden → hidden, one for each other stream.
    """

    altup_projections: tuple[Linear, ...]

    def children(self) -> Iterator[tuple[str, Component]]:
        """Numbered."""
        yield from ((f"altup_projections/{i}", proj) for i, proj in enumerate(self.altup_projections))


@dataclass(frozen=True)
class JoinStreams(Component):
    """The mean over the first stream and projections of the others with its magnitude.

    Attributes:
        altup_unembed_projections: hidden → hidden, one for each other stream.
    """

    altup_unembed_projections: tuple[Linear, ...]

    def children(self) -> Iterator[tuple[str, Component]]:
        """Numbered."""
        yield from ((f"altup_unembed_projections/{i}", proj) for i, proj in enumerate(self.altup_unembed_projections))


@dataclass(frozen=True)
class AltUp(Component):
    """How the streams of a layer are predicted from each other, and corrected by what the layer gives.

    Attributes:
        streams: how many.
        modality_router: hidden → streams.
        router_norm: before it.
        prediction_coefs, correction_coefs: streams → streams², streams → streams.
        scaled: the corrected first stream is multiplied by a vector before the layer's own input is added.
    """

    streams: Axis
    modality_router: Linear
    router_norm: Gemma4Norm
    prediction_coefs: Linear
    correction_coefs: Linear
    scaled: bool = True

    def own_weights(self) -> Iterator[Weight]:
        """``correct_output_scale`` (hidden,), which is there whether or not it is used."""
        yield Weight("correct_output_scale", (self.router_norm.width,), idle=not self.scaled, frozen=not self.scaled)


@dataclass(frozen=True)
class Laurel(Component):
    """A low-rank branch: ``x + norm(right(left(x)))``."""

    linear_left: Linear
    linear_right: Linear
    post_laurel_norm: Gemma4Norm


@dataclass(frozen=True)
class SparseGateMLP(GatedMLP):
    """A gated network whose gate keeps what stands out from its mean by so many standard deviations."""


@dataclass(frozen=True)
class AltUpLayer(Component):
    """A transformer layer on the first of several streams, beside a low-rank branch; the others are predicted and corrected.

    Attributes:
        self_attn, mlp: the branches.
        norm: the shape of the four norms around them.
        altup: of the streams.
        laurel: the low-rank branch.
        inputs: what is added to the other streams at the end.
    """

    self_attn: Gemma4Attention
    mlp: GatedMLP
    norm: Gemma4Norm
    altup: AltUp
    laurel: Laurel
    inputs: LayerInputs

    def children(self) -> Iterator[tuple[str, Component]]:
        """The branches, the norms, and what is in the layer itself."""
        yield "self_attn", self.self_attn
        yield "mlp", self.mlp
        for name in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"):
            yield name, self.norm
        yield "altup", self.altup
        yield "laurel", self.laurel
        yield from self.inputs.children()


@dataclass(frozen=True)
class OtherTokens(Component):
    """Rows for ids of another kind (images, sounds), projected to the text's width; the tower's tokens go through the same projection.

    Attributes:
        name: the module's.
        vocab: ids of that kind.
        hard_embedding_norm, soft_embedding_norm: of rows, and of the tower's tokens.
        embedding_projection: the tower's width → hidden.
        norm: behind it, without weight.
    """

    name: str
    vocab: Axis
    hard_embedding_norm: Gemma4Norm
    soft_embedding_norm: Gemma4Norm
    embedding_projection: Linear
    norm: Gemma4Norm

    @property
    def module_name(self) -> str:
        """Its own name."""
        return self.name

    def own_weights(self) -> Iterator[Weight]:
        """``embedding/weight`` (vocab, width)."""
        yield Weight("embedding/weight", (self.vocab, self.embedding_projection.inputs))
