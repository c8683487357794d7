"""The feed-forward network."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.parallel import gather
from memcalc.components import GatedMLP
from memcalc.errors import InputError
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(GatedMLP)
def feed_forward(ctx: Context, m: GatedMLP, x: Tensor) -> Tensor:
    """``w2(silu(w1(x)) * w3(x))`` (FeedForward.forward), of the gathered sequence."""
    if m.up is None:
        raise InputError("torchtitan's feed-forward networks have gate and up apart; use code: transformers", where="code")
    x = gather(ctx, x, "gathered input")
    return ctx.run(m.down, F.mul(apply_activation(ctx.run(m.gate, x), m.activation), ctx.run(m.up, x), "gate * up"))
