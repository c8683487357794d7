"""A linear layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memcalc.specs.model import Axis, Component, Cut, Weight


@dataclass(frozen=True)
class Linear(Component):
    """``y = x Wᵀ + b``.

    Attributes:
        name: the module's name in the model's code (``q_proj``), which adapters and plans refer to.
        inputs, outputs: its two axes.
        bias: whether it has one.
        split: how tensor or expert parallelism cuts it (``column`` its outputs, ``row`` its inputs, …).
        dtype: what its weights are held in where that is not the model's dtype.
    """

    name: str
    inputs: Axis
    outputs: Axis
    bias: bool = False
    split: Cut | None = None
    dtype: str | None = None

    @property
    def module_name(self) -> str:
        """Its own name."""
        return self.name

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (out, in) and ``bias`` (out,); a row-parallel bias is replicated."""
        row = self.split in ("row", "expert_row")
        cuts: tuple[tuple[Cut, int], ...] = () if self.split is None else ((self.split, 1 if row else 0),)
        yield Weight("weight", (self.outputs, self.inputs), cuts, self.dtype)
        if self.bias:
            yield Weight("bias", (self.outputs,), () if row else cuts, self.dtype)
