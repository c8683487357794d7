"""The end of a model that judges: one number for each token."""

from __future__ import annotations

from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class ScoreHead(Component):
    """A projection to one number (``score`` of transformers' sequence classifiers, ``v_head`` of critics).

    Attributes:
        proj: hidden → 1.
    """

    proj: Linear
