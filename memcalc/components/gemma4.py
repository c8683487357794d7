"""What Gemma 4 has of its own: norms by power, values that may be keys, experts beside the network, inputs for each layer."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.components.linear import Linear
from memcalc.components.mlp import GatedMLP
from memcalc.components.moe import Experts
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Gemma4Norm(RMSNorm):
    """A root-mean-square norm in fp32, its root taken by a power; ``unscaled`` has no weight."""


@dataclass(frozen=True)
class Gemma4Attention(Attention):
    """Grouped-query attention with norms on queries, keys and values, whose scores are not scaled.

    Where `v` is None values are the keys before their norm; where `k` is, too, both come from an earlier layer of the same kind.

    Attributes:
        v_norm: of values, without weight.
        stores: the model has variables for its keys and values, which other models may ask for.
    """

    v_norm: Gemma4Norm | None = None
    stores: bool = False


@dataclass(frozen=True)
class Gemma4Router(Component):
    """A softmax over all experts of a normalised, scaled input; the chosen are scaled for each expert.

    Attributes:
        norm: without weight.
        proj: hidden → experts.
        top_k: experts per token.
    """

    norm: Gemma4Norm
    proj: Linear
    top_k: int

    def own_weights(self) -> Iterator[Weight]:
        """``scale`` (hidden,), ``per_expert_scale`` (experts,)."""
        yield Weight("scale", (self.proj.inputs,))
        yield Weight("per_expert_scale", (self.proj.outputs,))


@dataclass(frozen=True)
class LayerInputs(Component):
    """What a layer adds at its end from an embedding of its own (E2B, E4B).

    Attributes:
        per_layer_input_gate, per_layer_projection: hidden → small, small → hidden.
        norm: of what comes back.
    """

    per_layer_input_gate: Linear
    per_layer_projection: Linear
    norm: Gemma4Norm

    def children(self) -> Iterator[tuple[str, Component]]:
        """As the layer names them."""
        yield "per_layer_input_gate", self.per_layer_input_gate
        yield "per_layer_projection", self.per_layer_projection
        yield "post_per_layer_input_norm", self.norm


@dataclass(frozen=True)
class Gemma4Layer(Component):
    """Norms before and after both branches; experts may run beside the network, on the same residual.

    Attributes:
        self_attn, mlp: the branches.
        norm: the shape of all its norms.
        gate: the router (the layer's ``router``).
        experts: what it chooses from.
        inputs: what is added at the end.
    """

    self_attn: Gemma4Attention
    mlp: GatedMLP
    norm: Gemma4Norm
    gate: Gemma4Router | None = None
    experts: Experts | None = None
    inputs: LayerInputs | None = None

    def children(self) -> Iterator[tuple[str, Component]]:
        """The branches, the norms, and what is in the layer itself."""
        yield "self_attn", self.self_attn
        yield "mlp", self.mlp
        for name in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"):
            yield name, self.norm
        if self.gate is not None and self.experts is not None:
            yield "router", self.gate
            yield "experts", self.experts
            for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
                yield name, self.norm
        if self.inputs is not None:
            yield from self.inputs.children()


@dataclass(frozen=True)
class InputTables(Component):
    """The table of inputs for all layers, and their projection from the embeddings (E2B, E4B); counted, with no program.

    Attributes:
        vocab: its rows.
        proj: hidden → all layers' inputs.
        norm: of each.
    """

    vocab: Axis
    proj: Linear
    norm: Gemma4Norm

    def own_weights(self) -> Iterator[Weight]:
        """``embed_tokens_per_layer/weight`` (vocab, layers · small)."""
        yield Weight("embed_tokens_per_layer/weight", (self.vocab, self.proj.outputs), (("vocab", 0),))

    def children(self) -> Iterator[tuple[str, Component]]:
        """The projection and its norm."""
        yield "per_layer_model_projection", self.proj
        yield "per_layer_projection_norm", self.norm
