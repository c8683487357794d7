"""LFM2's mixer as PyTorch's own operators run it, which is how transformers does where the package causal-conv1d is absent."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.short_conv import ShortConv
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.tensor import Tensor


@runs(ShortConv)
def short_conv(ctx: Context, m: ShortConv, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Lfm2ShortConv.forward)."""
    part = (ctx.batch, m.hidden, ctx.seq)
    both = ctx.run(m.in_proj, x)
    b, c, h = scan.split_into(both, (part, part, part))
    h = ctx.run(m.conv, F.mul(b, h, "B * x"))
    y = F.view(F.mul(c, h, "C * convolved"), (ctx.batch, ctx.seq, m.hidden))
    return ctx.run(m.out_proj, y)
