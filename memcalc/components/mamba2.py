"""Mamba-2 (Dao & Gu 2024): a state space whose heads share their decay, computed in chunks of the sequence."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.conv import DepthwiseConv
from memcalc.components.gated_norm import GatedRMSNorm
from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Mamba2(Component):
    """The mixer.

    Attributes:
        num_heads, head_dim: of the channels.
        num_groups: heads of a group share B and C.
        state: the size of a head's state for each of its channels.
        chunk: tokens that are computed at once.
        in_proj: hidden → gate, channels with B and C, and a time step for each head.
        conv1d: over the channels, B and C.
        norm: on what comes out, with the gate; None: the gate alone (Falcon-H1).
        out_proj: channels → hidden.
        name: the module's, where its layer does not call it ``mixer`` (Granite 4, Bamba).
        scaled: its input is multiplied by a constant, what is projected by a vector of them, which is a buffer (Falcon-H1).
    """

    num_heads: Axis
    head_dim: Axis
    num_groups: int
    state: Axis
    chunk: int
    in_proj: Linear
    conv1d: DepthwiseConv
    norm: GatedRMSNorm | None
    out_proj: Linear
    name: str = ""
    scaled: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """More than one chunk."""
        return (self.chunk + 1,)

    @property
    def module_name(self) -> str:
        """Its own name."""
        return self.name

    def own_weights(self) -> Iterator[Weight]:
        """``dt_bias``, ``A_log`` and ``D``, each (heads,)."""
        for name in ("dt_bias", "A_log", "D"):
            yield Weight(name, (self.num_heads,))


def mamba2(
    hidden: Axis,
    *,
    num_heads: int,
    head_dim: int,
    num_groups: int,
    state: int,
    chunk: int,
    kernel: int,
    bias: bool,
    conv_bias: bool,
    activation: str,
    name: str = "",
) -> Mamba2:
    """The mixer of these sizes.

    Args:
        hidden: the model's width.
        num_heads, head_dim, num_groups, state, chunk: see `Mamba2`.
        kernel: of the convolution.
        bias: of both projections.
        conv_bias: of the convolution.
        activation: after the convolution.
        name: see `Mamba2`.
    """
    intermediate = Axis("num_heads * head_dim", num_heads * head_dim)
    mixed = Axis("num_heads * head_dim + 2 * n_groups * state_size", intermediate.size + 2 * num_groups * state)
    projected = Axis("2 * num_heads * head_dim + 2 * n_groups * state_size + num_heads", intermediate.size + mixed.size + num_heads)
    return Mamba2(
        Axis("num_heads", num_heads),
        Axis("head_dim", head_dim),
        num_groups,
        Axis("state_size", state),
        chunk,
        in_proj=Linear("in_proj", hidden, projected, bias),
        conv1d=DepthwiseConv(mixed, kernel, conv_bias, activation),
        norm=GatedRMSNorm(intermediate, group=intermediate.size // num_groups),
        out_proj=Linear("out_proj", intermediate, hidden, bias),
        name=name,
    )
