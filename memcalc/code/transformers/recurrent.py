"""Layers and heads of models whose mixers are recurrent."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.linear import linear
from memcalc.components.recurrent import RecurrentLayer, WideLinear
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(RecurrentLayer)
def recurrent_layer(ctx: Context, m: RecurrentLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; in fp32 where the model holds its residual stream so (MambaBlock.forward, NemotronHBlock.forward)."""
    h = ctx.run(m.norm, F.cast(x, ctx.settings.dtype, "input in the weights' dtype"), "norm")
    residual = F.cast(x, "float32", "residual in fp32") if m.residual_in_fp32 else x
    return F.add(residual, ctx.run(m.mixer, h, "mixer"), "hidden_states")


@runs(WideLinear)
def wide_linear(ctx: Context, m: WideLinear, x: Tensor) -> Tensor:
    """x (…, in) → (…, out) in fp32 (MambaForCausalLM.forward)."""
    x = F.cast(x, ctx.settings.dtype, "input in the weights' dtype")
    return F.cast(linear(ctx, m, x), "float32", "output in fp32")
