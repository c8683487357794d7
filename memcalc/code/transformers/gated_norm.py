"""Norms with a gate."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.components.gated_norm import GatedRMSNorm
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import activation
from memcalc.tape.tensor import Tensor


def gated_norm(ctx: Context, m: GatedRMSNorm, x: Tensor, gate: Tensor, name: str = "norm") -> Tensor:
    """x and gate (…, width) → the same; the module runs under its name."""
    with ctx.inside(name):
        weight = ctx.parameter(next(m.own_weights()))
        if m.wide:
            return in_fp32(m, x, gate, weight)
        return gate_first(m, x, gate, weight) if m.order == "gate first" else norm_first(x, gate, weight)


def gate_first(m: GatedRMSNorm, x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    """In fp32 throughout, in the dtype that x came in (MambaRMSNormGated.forward)."""
    dtype, shape = x.dtype, x.shape
    h = gated(F.cast(x, "float32", "input in fp32"), gate, "gated")
    h = normalise(by_group(m, h))
    return F.mul(F.cast(F.view(h, shape), dtype, "normalised"), weight, "output")


def in_fp32(m: GatedRMSNorm, x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    """Either order, the weight in fp32 as well; cast down at the end (FalconH1RMSNormGated.forward)."""
    h = F.cast(x, "float32", "input in fp32")
    if m.order == "gate first":
        h = gated(h, gate, "gated")
    h = normalise(by_group(m, h))
    h = F.view(F.mul(h, F.view(weight, h.shape[-2:]), "scaled in fp32"), x.shape)
    if m.order == "norm first":
        h = gated(h, gate, "gated in fp32")
    return F.cast(h, x.dtype, "output")


def gated(x: Tensor, gate: Tensor, name: str) -> Tensor:
    """``x * silu(gate)``, the gate in fp32."""
    return F.mul(x, activation(F.cast(gate, "float32", "gate in fp32"), "silu"), name)


def by_group(m: GatedRMSNorm, x: Tensor) -> Tensor:
    """x with what is normalised together in its last axis."""
    size = m.width.size if m.group is None else m.group
    return F.view(x, (*x.shape[:-1], Axis("groups", m.width.size // size), Axis("group", size)))


def norm_first(x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    """The gate is applied in fp32 to what the norm gives in the model's dtype (Qwen3NextRMSNormGated.forward)."""
    dtype = x.dtype
    h = normalise(F.cast(x, "float32", "input in fp32"))
    h = F.mul(F.cast(h, dtype, "normalised"), weight, "scaled")
    return F.cast(gated(h, gate, "gated in fp32"), dtype, "output")


def normalise(x: Tensor) -> Tensor:
    """``x * rsqrt(mean(x²) + eps)``."""
    variance = F.mean(F.pow2(x), "variance")
    return F.mul(x, F.rsqrt(F.add_scalar(variance, "variance + eps"), "inverse root mean square"), "normalised in fp32")
