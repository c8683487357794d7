"""Norms with a gate, on what a recurrent mixer gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight

Order = Literal["gate first", "norm first"]


@dataclass(frozen=True)
class GatedRMSNorm(Component):
    """A root-mean-square norm and a gate.

    Attributes:
        width: of the weight.
        order: ``gate first`` multiplies by silu(gate), then normalises (Mamba-2); ``norm first`` the other way round (Qwen3-Next).
        group: so many neighbours are normalised together; None: all.
        wide: it multiplies by its weight in fp32 (Falcon-H1).
    """

    width: Axis
    order: Order = "gate first"
    group: int | None = None
    wide: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (width,)."""
        yield Weight("weight", (self.width,))
