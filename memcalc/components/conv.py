"""Convolutions along the sequence."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class DepthwiseConv(Component):
    """A causal convolution of each channel by itself, and an activation.

    Attributes:
        channels: how many.
        kernel: tokens that it sees.
        bias: whether it has one.
        activation: Hugging Face's name, or nothing.
        name: the module's.
    """

    channels: Axis
    kernel: int
    bias: bool = True
    activation: str = "silu"
    name: str = "conv1d"

    @property
    def module_name(self) -> str:
        """Its own name."""
        return self.name

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (channels, 1, kernel) and ``bias`` (channels,)."""
        yield Weight("weight", (self.channels, Axis("1", 1), Axis("conv_kernel", self.kernel)))
        if self.bias:
            yield Weight("bias", (self.channels,))
