"""A linear layer."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.dataclass import dataclass
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


@dataclass(frozen=True)
class Conv1D(Linear):
    """``y = x W + b``: a linear layer that holds its weight the other way round (GPT-2)."""

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (in, out) and ``bias`` (out,)."""
        for weight in super().own_weights():
            if weight.name == "weight":
                yield weight._replace(shape=(self.inputs, self.outputs), cuts=tuple((kind, 1 - axis) for kind, axis in weight.cuts))
            else:
                yield weight


@dataclass(frozen=True)
class SeparateBiasLinear(Linear):
    """A linear layer whose bias is added in a step of its own (Falcon)."""
