"""Normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Cut, Weight


@dataclass(frozen=True)
class RMSNorm(Component):
    """Root-mean-square norm (Zhang & Sennrich 2019).

    Attributes:
        width: the normalised axis.
        style: how its code scales: ``llama`` casts down, then multiplies by the weight; ``gemma`` multiplies by (1 + weight) in
            fp32, then casts down; ``fp32_scale`` multiplies by the weight in fp32, then casts down; ``fp32_weight`` likewise, and casts the weight up
            first; ``unscaled`` has no weight.
    """

    width: Axis
    style: Literal["llama", "gemma", "fp32_scale", "fp32_weight", "unscaled"] = "llama"

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (width,)."""
        if self.style != "unscaled":
            yield Weight("weight", (self.width,))


@dataclass(frozen=True)
class LayerNorm(Component):
    """Layer norm (Ba et al. 2016).

    Attributes:
        width: the normalised axis.
        bias: whether it shifts.
        style: how its code runs: ``kernel`` as one; ``fp32`` written out in fp32 (Cohere); ``upcast`` as one on an fp32 copy, without
            weights (OLMo); ``one_plus`` as one that multiplies by 1 + weight (Nemotron).
        heads: a weight for each head, where the width is a head's.
        modules: the heads are normalised one by one, each by a module of its own (StableLM).
    """

    width: Axis
    bias: bool = True
    style: Literal["kernel", "fp32", "upcast", "one_plus"] = "kernel"
    heads: Axis | None = None
    modules: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` and ``bias``, each (width,) or (heads, width)."""
        if self.style == "upcast":
            return
        shape = (self.width,) if self.heads is None else (self.heads, self.width)
        cuts: tuple[tuple[Cut, int], ...] = () if self.heads is None else (("column", 0),)
        yield Weight("weight", shape, cuts)
        if self.bias:
            yield Weight("bias", shape, cuts)
