"""Mixtures of experts (Shazeer et al. 2017; Fedus et al. 2021): a router, the experts that it chooses from, and experts that all tokens share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.linear import Linear
from memcalc.components.mlp import MLP, GatedMLP
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Groups:
    """Experts in groups, of which only the best are chosen from (DeepSeek-AI 2024, device-limited routing).

    Attributes:
        count: how many groups the experts form.
        chosen: how many of them take part.
    """

    count: int
    chosen: int


@dataclass(frozen=True)
class ExpertsAdapter(Component):
    """A low-rank adapter of a weight; of a stacked one, factors of all experts side by side (peft/tuners/lora/layer.py, ParamWrapper).

    Attributes:
        parameter: the weight's name.
        inputs, outputs: of one expert's matrix.
        ranks: rank times experts.
        r: rank.
        dtype: what both factors are held in.
    """

    parameter: str
    inputs: Axis
    outputs: Axis
    ranks: Axis
    r: Axis
    dtype: str = "float32"

    @property
    def module_name(self) -> str:
        """The weight's name."""
        return self.parameter

    def own_weights(self) -> Iterator[Weight]:
        """``lora_A`` (r * experts, in) and ``lora_B`` (out, r * experts)."""
        yield Weight("lora_A/default/weight", (self.ranks, self.inputs), dtype=self.dtype)
        yield Weight("lora_B/default/weight", (self.outputs, self.ranks), dtype=self.dtype)


@dataclass(frozen=True)
class Router(Component):
    """A score for each expert and token, and the choice by it; kinds of routers differ in how they score.

    Attributes:
        name: the module's name (``gate``, ``router``).
        inputs, experts: the axes of its weight.
        top_k: experts per token.
        bias: whether the scores have one.
        dtype: of its weight, where that is not the model's; a float32 router reads a float32 copy of its input.
        inner: the linear layer inside the module that holds the weight (``wg``), or nothing when the module does itself.
        adapters: low-rank, of its weight.
    """

    name: str
    inputs: Axis
    experts: Axis
    top_k: int
    bias: bool = False
    dtype: str | None = None
    inner: str = ""
    adapters: tuple[ExpertsAdapter, ...] = ()

    @property
    def module_name(self) -> str:
        """Its own name."""
        return self.name

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (experts, in), ``bias`` (experts,): on every rank whole."""
        prefix = f"{self.inner}/" if self.inner else ""
        yield Weight(f"{prefix}weight", (self.experts, self.inputs), dtype=self.dtype)
        if self.bias:
            yield Weight(f"{prefix}bias", (self.experts,), dtype=self.dtype)


@dataclass(frozen=True)
class SoftmaxRouter(Router):
    """A softmax over all experts, then the best of them (Mixtral, Qwen, OLMoE, DeepSeek-V2, Hunyuan).

    Attributes:
        normalise: the chosen scores are divided by their sum, in place.
        cast_back: they return to the dtype of the logits.
        wide: the softmax is taken in float32.
        in_place: the division takes the place of the chosen scores; otherwise it makes a copy.
        scaled: they are multiplied by a constant.
        groups: the choice is limited to groups.
    """

    normalise: bool = False
    cast_back: bool = False
    scaled: bool = False
    groups: Groups | None = None
    wide: bool = True
    in_place: bool = True


@dataclass(frozen=True)
class TopKRouter(Router):
    """The best logits, then a softmax over those alone (gpt-oss, Granite).

    Attributes:
        wide: logits are brought to float32 first.
    """

    wide: bool = False


@dataclass(frozen=True)
class SigmoidRouter(Router):
    """Sigmoid scores, chosen by what a constant for each expert corrects them to (DeepSeek-V3, GLM-4.5, MiniMax-M2).

    The correction is a buffer in float32, which nothing here counts: the family adds it to the model's buffers.

    Attributes:
        groups: the choice is limited to groups.
        normalise: the chosen scores are divided by their sum, in place.
        eps: a constant is added to that sum first.
        scaled: they are multiplied by a constant.
        wide: scores are of logits in float32.
        in_place: the division takes the place of the chosen scores; otherwise it makes a copy (LFM2).
    """

    groups: Groups | None = None
    normalise: bool = True
    eps: bool = True
    scaled: bool = True
    wide: bool = True
    in_place: bool = True


@dataclass(frozen=True)
class GroupedSoftmaxRouter(Router):
    """A softmax in the logits' dtype; the best of the groups whose best two sum up highest, multiplied by a constant (Mistral Small 4).

    Attributes:
        groups: the choice is limited to them.
        normalise: the chosen scores are divided by their sum, in place.
    """

    groups: Groups = Groups(1, 1)
    normalise: bool = True


@dataclass(frozen=True)
class CorrectedSoftmaxRouter(Router):
    """Softmax scores in float32, chosen with a correction for each expert that is a parameter without gradient (ERNIE 4.5)."""

    def own_weights(self) -> Iterator[Weight]:
        """``weight``, and ``moe_statics/e_score_correction_bias`` (1, experts)."""
        yield from super().own_weights()
        yield Weight("moe_statics/e_score_correction_bias", (Axis("1", 1), self.experts), dtype="float32", frozen=True)


@dataclass(frozen=True)
class SparseMixerRouter(Router):
    """Two experts, each drawn from a masked softmax with its own gradient estimate (Liu et al. 2024; Phi-3.5-MoE)."""


@dataclass(frozen=True)
class GroupedAdapter(Component):
    """A low-rank adapter of each expert, stacked and cut as the weight that it stands beside (mcore-bridge 1.6, tuners/lora.py).

    Attributes:
        parameter: the weight's name.
        count: the experts.
        inputs, outputs: of one expert's matrix.
        r: rank.
        cut: how the weight is cut beside its experts.
        dropout: of what it reads.
    """

    parameter: str
    count: Axis
    inputs: Axis
    outputs: Axis
    r: Axis
    cut: Literal["expert_column", "expert_row"]
    dropout: float = 0.0

    @property
    def module_name(self) -> str:
        """The weight's name."""
        return self.parameter

    def own_weights(self) -> Iterator[Weight]:
        """``lora_A`` (experts, r, in) and ``lora_B`` (experts, out, r)."""
        row = self.cut == "expert_row"
        yield Weight("lora_A/default/weight", (self.count, self.r, self.inputs), (("expert", 0), (self.cut, 2)) if row else (("expert", 0),))
        yield Weight("lora_B/default/weight", (self.count, self.outputs, self.r), (("expert", 0),) if row else (("expert", 0), (self.cut, 1)))


@dataclass(frozen=True)
class Experts(Component):
    """Networks of one shape whose weights are stacked: ``down(act(gate(x)) * up(x))`` by each token's experts.

    Attributes:
        count: the stacked axis, which expert parallelism cuts.
        hidden, intermediate: of each expert.
        activation: Hugging Face's ``hidden_act``; ``clamped`` is gpt-oss's gate of interleaved columns, both sides clamped.
        bias: each expert's two projections have one.
        transposed: weights are (in, out) instead of (out, in).
        fused: gate and up stand in one tensor; otherwise there are three, flat over all experts (DBRX's ``w1``, ``v1``, ``w2``).
        gated: otherwise ``down(act(up(x)))``, with ``up_proj`` alone (Nemotron-H).
        adapters: low-rank, of its weights.
    """

    count: Axis
    hidden: Axis
    intermediate: Axis
    activation: str = "silu"
    bias: bool = False
    transposed: bool = False
    fused: bool = True
    gated: bool = True
    adapters: tuple[ExpertsAdapter | GroupedAdapter, ...] = ()

    @property
    def first(self) -> str:
        """What the first projection holds."""
        return "gate_up" if self.gated else "up"

    @property
    def both(self) -> Axis:
        """Gate and up side by side; up alone without gates."""
        if not self.gated:
            return self.intermediate
        return Axis(f"2 * {self.intermediate.name}", 2 * self.intermediate.size)

    def own_weights(self) -> Iterator[Weight]:
        """``gate_up_proj`` (experts, 2 intermediate, hidden), ``down_proj`` (experts, hidden, intermediate), and their biases."""
        if not self.fused:
            shape = (self.count, self.intermediate, self.hidden)
            yield Weight("mlp/w1", shape, (("expert", 0), ("expert_column", 1)))
            yield Weight("mlp/v1", shape, (("expert", 0), ("expert_column", 1)))
            yield Weight("mlp/w2", shape, (("expert", 0), ("expert_row", 1)))
            return
        out, into = (2, 1) if self.transposed else (1, 2)
        up, down = [self.count] * 3, [self.count] * 3
        up[out], up[into] = self.both, self.hidden
        down[out], down[into] = self.hidden, self.intermediate
        yield Weight(f"{self.first}_proj", tuple(up), (("expert", 0), ("expert_column", out)))
        if self.bias:
            yield Weight(f"{self.first}_proj_bias", (self.count, self.both), (("expert", 0), ("expert_column", 1)))
        yield Weight("down_proj", tuple(down), (("expert", 0), ("expert_row", into)))
        if self.bias:
            yield Weight("down_proj_bias", (self.count, self.hidden), (("expert", 0),))


@dataclass(frozen=True)
class MoE(Component):
    """A router, its experts, and what all tokens share.

    Attributes:
        gate: the router.
        experts: what it chooses from.
        shared: an expert for all tokens.
        shared_gate: a scalar gate on that (Qwen).
        shared_name: the module's name.
        order: whether the shared expert runs before the router or after the experts.
        into_latent, from_latent: projections around the routed experts, which work on a narrower latent (Nemotron-H).
    """

    gate: Router
    experts: Experts
    shared: GatedMLP | MLP | None = None
    shared_gate: Linear | None = None
    shared_name: str = "shared_experts"
    order: Literal["shared first", "shared last"] = "shared last"
    into_latent: Linear | None = None
    from_latent: Linear | None = None

    def children(self) -> Iterator[tuple[str, Component]]:
        """As the fields, with the shared expert under its own name."""
        for name, child in super().children():
            yield (self.shared_name if name == "shared" else name), child


def num_inactive(module: Component) -> int:
    """Elements, in a component and all below it, of routed experts that a token does not visit."""
    gate, experts = getattr(module, "gate", None), getattr(module, "experts", None)
    if isinstance(gate, Router) and isinstance(experts, Experts):
        return experts.num_params // int(experts.count.size) * (int(experts.count.size) - gate.top_k)
    if isinstance(gate, Router) and isinstance(experts, tuple):
        return sum(expert.num_params for expert in experts[gate.top_k :])
    return sum(num_inactive(child) for _, child in module.children())
