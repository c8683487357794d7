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
        return gate_first(m, x, gate, weight) if m.order == "gate first" else norm_first(x, gate, weight)


def gate_first(m: GatedRMSNorm, x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    """In fp32 throughout, in the dtype that x came in (MambaRMSNormGated.forward)."""
    dtype, shape = x.dtype, x.shape
    h = F.cast(x, "float32", "input in fp32")
    h = F.mul(h, activation(F.cast(gate, "float32", "gate in fp32"), "silu"), "gated")
    size = m.width.size if m.group is None else m.group
    h = normalise(F.view(h, (*shape[:-1], Axis("groups", m.width.size // size), Axis("group", size))))
    return F.mul(F.cast(F.view(h, shape), dtype, "normalised"), weight, "output")


def norm_first(x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    """The gate is applied in fp32 to what the norm gives in the model's dtype (Qwen3NextRMSNormGated.forward)."""
    dtype = x.dtype
    h = normalise(F.cast(x, "float32", "input in fp32"))
    h = F.mul(F.cast(h, dtype, "normalised"), weight, "scaled")
    h = F.mul(h, activation(F.cast(gate, "float32", "gate in fp32"), "silu"), "gated in fp32")
    return F.cast(h, dtype, "output")


def normalise(x: Tensor) -> Tensor:
    """``x * rsqrt(mean(x²) + eps)``."""
    variance = F.mean(F.pow2(x), "variance")
    return F.mul(x, F.rsqrt(F.add_scalar(variance, "variance + eps"), "inverse root mean square"), "normalised in fp32")
