"""Experts that run one after the other, each on the rows that chose it."""

from __future__ import annotations

from memcalc.components.head import Head
from memcalc.components.mlp import GatedMLP
from memcalc.components.moe import MoE, Router, SoftmaxRouter
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class LoopedMoE(MoE):
    """Experts whose weights are stacked and selected one by one (DBRX)."""


@dataclass(frozen=True)
class BalancedRouter(SoftmaxRouter):
    """A softmax router that adds a loss for uneven choices to the model's own (DeepSeek v1).

    Attributes:
        balance: what the choices are counted over: each sequence, all tokens, or nothing.
    """

    balance: str = "sequence"


@dataclass(frozen=True)
class ModuleMoE(Component):
    """Experts that are modules of their own, on every rank (the code that comes with DeepSeek v1 and MiniCPM-MoE).

    Attributes:
        gate: the router.
        experts: one network each.
        shared_experts: for all tokens.
    """

    gate: Router
    experts: tuple[GatedMLP, ...]
    shared_experts: GatedMLP | None = None


@dataclass(frozen=True)
class RemoteHead(Head):
    """The head of code that comes with a model: logits of all tokens, in float32, which the loss shifts by copying them."""
