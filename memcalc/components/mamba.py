"""Mamba (Gu & Dao 2023): a selective state space in the place of attention."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.conv import DepthwiseConv
from memcalc.components.linear import Linear
from memcalc.components.norm import RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class Mamba(Component):
    """The mixer: gated channels, each with a small state that is carried along the sequence.

    Attributes:
        intermediate, state, rank: channels, the state of each, and the width of the latent from which time steps come.
        in_proj: hidden → channels and their gate.
        conv1d: over the channels.
        x_proj: channels → time-step latent, B and C.
        dt_proj: latent → a time step for each channel.
        out_proj: channels → hidden.
        dt_layernorm, b_layernorm, c_layernorm: norms of what `x_proj` gives (Jamba, Falcon-Mamba).
        name: the module's, where its layer does not call it ``mixer`` (Jamba).
    """

    intermediate: Axis
    state: Axis
    rank: Axis
    in_proj: Linear
    conv1d: DepthwiseConv
    x_proj: Linear
    dt_proj: Linear
    out_proj: Linear
    dt_layernorm: RMSNorm | None = None
    b_layernorm: RMSNorm | None = None
    c_layernorm: RMSNorm | None = None
    name: str = ""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Its loop over tokens is run in full below five, and counted from there on."""
        return 2, 3, 4, 5

    @property
    def module_name(self) -> str:
        """Its own name."""
        return self.name

    def own_weights(self) -> Iterator[Weight]:
        """``A_log`` (channels, state) and ``D`` (channels,)."""
        yield Weight("A_log", (self.intermediate, self.state))
        yield Weight("D", (self.intermediate,))


def mamba(
    hidden: Axis,
    intermediate: Axis,
    state: Axis,
    rank: Axis,
    *,
    kernel: int,
    bias: bool,
    conv_bias: bool,
    activation: str,
    norms: tuple[RMSNorm | None, RMSNorm | None, RMSNorm | None] = (None, None, None),
    name: str = "",
) -> Mamba:
    """The mixer of these sizes.

    Args:
        hidden, intermediate, state, rank: see `Mamba`.
        kernel: of the convolution.
        bias: of the projections from and to the hidden size; that of the time steps always has one.
        conv_bias: of the convolution.
        activation: after the convolution.
        norms: of time-step latent, B and C.
        name: of the module.
    """
    doubled = Axis("2 * intermediate_size", 2 * intermediate.size)
    latent = Axis("time_step_rank + 2 * state_size", rank.size + 2 * state.size)
    return Mamba(
        intermediate,
        state,
        rank,
        in_proj=Linear("in_proj", hidden, doubled, bias),
        conv1d=DepthwiseConv(intermediate, kernel, conv_bias, activation),
        x_proj=Linear("x_proj", intermediate, latent),
        dt_proj=Linear("dt_proj", rank, intermediate, bias=True),
        out_proj=Linear("out_proj", intermediate, hidden, bias),
        dt_layernorm=norms[0],
        b_layernorm=norms[1],
        c_layernorm=norms[2],
        name=name,
    )
