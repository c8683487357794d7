"""A network around xIELU, an activation whose two slopes are learned (Huang and Schlag 2024)."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class XIELU(Component):
    """A parabola to the right of zero, an exponential to the left of it."""

    def own_weights(self) -> Iterator[Weight]:
        """``alpha_p``, ``alpha_n``: a number each."""
        one = (Axis("1", 1),)
        yield from (Weight("alpha_p", one), Weight("alpha_n", one))


@dataclass(frozen=True)
class XIELUMLP(Component):
    """``down(act_fn(up(x)))``.

    Attributes:
        up: hidden → intermediate.
        down: intermediate → hidden.
        act_fn: between them.
    """

    up: Linear
    down: Linear
    act_fn: XIELU
