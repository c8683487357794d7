"""Gated delta networks (Yang et al. 2024): linear attention whose state forgets, and is corrected rather than added to."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.conv import DepthwiseConv
from memcalc.components.gated_norm import GatedRMSNorm
from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight


@dataclass(frozen=True)
class GatedDeltaNet(Component):
    """The mixer.

    Attributes:
        num_k_heads, num_v_heads: each query and key head serves the same number of value heads.
        k_dim, v_dim: of a head.
        qkv: hidden → queries, keys and values; where `z` is None also the gate, head by head (Qwen3-Next).
        z: hidden → the gate of what comes out.
        b: hidden → how much each value head learns; where `a` is None also how much it forgets.
        a: hidden → how much each value head forgets.
        conv1d: over queries, keys and values.
        norm: on each head, with the gate.
        out_proj: values → hidden.
        chunk: tokens that are computed at once.
    """

    num_k_heads: Axis
    num_v_heads: Axis
    k_dim: Axis
    v_dim: Axis
    qkv: Linear
    z: Linear | None
    b: Linear
    a: Linear | None
    conv1d: DepthwiseConv
    norm: GatedRMSNorm
    out_proj: Linear
    chunk: int = 64

    @property
    def values(self) -> Axis:
        """All heads' values side by side."""
        return Axis("linear_num_value_heads * linear_value_head_dim", self.num_v_heads.size * self.v_dim.size)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Its loop over chunks is run in full below five, and counted from there on."""
        return tuple(i * self.chunk + 1 for i in range(1, 5))

    @property
    def module_name(self) -> str:
        """As in all models."""
        return "linear_attn"

    def own_weights(self) -> Iterator[Weight]:
        """``dt_bias`` and ``A_log``, each (value heads,)."""
        yield Weight("dt_bias", (self.num_v_heads,))
        yield Weight("A_log", (self.num_v_heads,))


def gated_delta_net(hidden: Axis, *, num_k_heads: int, num_v_heads: int, k_dim: int, v_dim: int, kernel: int, activation: str, fused: bool) -> GatedDeltaNet:
    """The mixer of these sizes.

    Args:
        hidden: the model's width.
        num_k_heads, num_v_heads, k_dim, v_dim: see `GatedDeltaNet`.
        kernel: of the convolution.
        activation: after the convolution.
        fused: two projections instead of four.
    """
    keys, values = num_k_heads * k_dim, Axis("linear_num_value_heads * linear_value_head_dim", num_v_heads * v_dim)
    mixed = Axis("2 * keys + values", 2 * keys + values.size)
    heads = Axis("linear_num_value_heads", num_v_heads)
    return GatedDeltaNet(
        Axis("linear_num_key_heads", num_k_heads),
        heads,
        Axis("linear_key_head_dim", k_dim),
        Axis("linear_value_head_dim", v_dim),
        qkv=Linear("in_proj_qkvz", hidden, Axis("2 * keys + 2 * values", mixed.size + values.size)) if fused else Linear("in_proj_qkv", hidden, mixed),
        z=None if fused else Linear("in_proj_z", hidden, values),
        b=Linear("in_proj_ba", hidden, Axis("2 * linear_num_value_heads", 2 * num_v_heads)) if fused else Linear("in_proj_b", hidden, heads),
        a=None if fused else Linear("in_proj_a", hidden, heads),
        conv1d=DepthwiseConv(mixed, kernel, bias=False, activation=activation),
        norm=GatedRMSNorm(Axis("linear_value_head_dim", v_dim), "norm first"),
        out_proj=Linear("out_proj", values, hidden),
    )
