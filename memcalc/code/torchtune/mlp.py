"""Feed-forward networks."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtune import compiled
from memcalc.components import GatedMLP
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(GatedMLP)
def feed_forward(ctx: Context, m: GatedMLP, x: Tensor) -> Tensor:
    """``w2(act(w1(x)) * w3(x))`` (FeedForward.forward)."""
    assert m.up is not None
    h = ctx.run(m.gate, x)
    if compiled.is_compiled(ctx):
        h = compiled.gated(h, ctx.run(m.up, x))
    else:
        h = apply_activation(h, m.activation)
        h = F.mul(h, ctx.run(m.up, x), "gate * up")
    return ctx.run(m.down, h)
