"""Feed-forward networks."""

from __future__ import annotations

from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class GatedMLP(Component):
    """SwiGLU, GeGLU (Shazeer 2020): ``down(act(gate(x)) * up(x))``.

    Attributes:
        gate, up: hidden → intermediate; with ``fused`` one linear makes both and `up` is None.
        down: intermediate → hidden.
        activation: Hugging Face's ``hidden_act``.
    """

    gate: Linear
    up: Linear | None
    down: Linear
    activation: str = "silu"


@dataclass(frozen=True)
class MLP(Component):
    """``down(act(up(x)))``.

    Attributes:
        up: hidden → intermediate.
        down: intermediate → hidden.
        activation: Hugging Face's ``hidden_act``.
    """

    up: Linear
    down: Linear
    activation: str = "gelu"
