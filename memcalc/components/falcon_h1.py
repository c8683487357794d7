"""What Falcon-H1 has of its own: a layer of two mixers side by side, a network with constants."""

from __future__ import annotations

from memcalc.components.attention import Attention
from memcalc.components.mamba2 import Mamba2
from memcalc.components.mlp import GatedMLP
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class ScaledMLP(GatedMLP):
    """A gated network whose gate and output are multiplied by constants."""


@dataclass(frozen=True)
class TwoMixerLayer(Component):
    """Mamba-2 and attention read one norm, their scaled outputs are summed; then a network, in a residual branch of its own.

    Attributes:
        input_layernorm, mamba, self_attn: the first branch.
        pre_ff_layernorm, feed_forward: the second.
    """

    input_layernorm: RMSNorm
    mamba: Mamba2
    self_attn: Attention
    pre_ff_layernorm: RMSNorm
    feed_forward: ScaledMLP
