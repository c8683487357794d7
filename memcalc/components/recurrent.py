"""Layers and heads of models whose mixers are recurrent."""

from __future__ import annotations

from memcalc.components.linear import Linear
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class RecurrentLayer(Component):
    """One residual branch: a norm and a mixer (Mamba, Nemotron-H).

    Attributes:
        norm: before the mixer.
        mixer: anything from hidden to hidden.
        residual_in_fp32: the sum is held in fp32, whatever the weights are.
    """

    norm: RMSNorm
    mixer: Component
    residual_in_fp32: bool = False


@dataclass(frozen=True)
class WideLinear(Linear):
    """A linear layer that reads its input in its weight's dtype and gives an fp32 copy of what comes out (Mamba's and Nemotron-H's heads)."""
