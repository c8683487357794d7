"""What Gemma 4 has of its own: norms by power, values that may be keys, keys and values that layers share, experts beside the network."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.components.layer_inputs import LayerInputs
from memcalc.components.linear import Linear
from memcalc.components.mlp import GatedMLP
from memcalc.components.moe import Experts
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component, Weight


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
        feeds: later layers of its kind take them.
        first: it is the first of those that take keys and values from another; in inference it goes on with tokens that get logits alone.
    """

    v_norm: Gemma4Norm | None = None
    stores: bool = False
    feeds: bool = False
    first: bool = False

    @property
    def reuses(self) -> bool:
        """Keys and values come from an earlier layer."""
        return self.k is None

    @property
    def remembers(self) -> bool:
        """It has keys and values of its own for a cache."""
        return self.causal and not self.reuses


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
