"""LFM2's gated short convolution in the place of attention."""

from __future__ import annotations

from memcalc.components.conv import DepthwiseConv
from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component


@dataclass(frozen=True)
class ShortConv(Component):
    """``out(C * conv(B * x))`` of three parts of one projection; nothing but the last few tokens is carried along.

    Attributes:
        hidden: the width of each part.
        in_proj: hidden → B, C and x.
        conv: over the channels.
        out_proj: hidden → hidden.
    """

    hidden: Axis
    in_proj: Linear
    conv: DepthwiseConv
    out_proj: Linear

    @property
    def module_name(self) -> str:
        """As in its layer."""
        return "conv"


def short_conv(hidden: Axis, *, kernel: int, bias: bool) -> ShortConv:
    """The mixer of these sizes; `bias` is that of all three."""
    return ShortConv(
        hidden,
        in_proj=Linear("in_proj", hidden, Axis("3 * hidden_size", 3 * hidden.size), bias),
        conv=DepthwiseConv(hidden, kernel, bias, activation="", name="conv"),
        out_proj=Linear("out_proj", hidden, hidden, bias),
    )
