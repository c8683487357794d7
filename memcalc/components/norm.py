"""Normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class RMSNorm(Component):
    """Root-mean-square norm (Zhang & Sennrich 2019).

    Attributes:
        width: the normalised axis.
        style: how its code scales: ``llama`` casts down, then multiplies by the weight; ``gemma`` multiplies by (1 + weight) in
            fp32, then casts down; ``fp32_scale`` multiplies by the weight in fp32, then casts down; ``unscaled`` has no weight.
    """

    width: Axis
    style: Literal["llama", "gemma", "fp32_scale", "unscaled"] = "llama"

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (width,)."""
        if self.style != "unscaled":
            yield Weight("weight", (self.width,))


@dataclass(frozen=True)
class LayerNorm(Component):
    """Layer norm (Ba et al. 2016), as one kernel.

    Attributes:
        width: the normalised axis.
        bias: whether it shifts.
    """

    width: Axis
    bias: bool = True

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (width,), ``bias`` (width,)."""
        yield Weight("weight", (self.width,))
        if self.bias:
            yield Weight("bias", (self.width,))
