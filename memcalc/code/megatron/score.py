"""A score for each token in the place of the output layer.

Source: ms-swift 4, swift/megatron/model, ``OutputLayerLinear``: one whole product on every rank, of the gathered sequence.
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import parallel
from memcalc.components.score import ScoreHead
from memcalc.tape.tensor import Tensor


@runs(ScoreHead)
def score_head(ctx: Context, m: ScoreHead, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden) → scores (sequence, batch, 1)."""
    params = parallel.parameters(ctx, m.proj)
    return parallel.plain(ctx, gathered(ctx, x), params, params[0].shape[0], "scores")


def gathered(ctx: Context, x: Tensor) -> Tensor:
    """The whole sequence; x itself where it is not cut. Backward takes this rank's part."""
    if not parallel.is_split(ctx):
        return x
    y, part = ctx.tape.new(parallel.whole(ctx, x), x.dtype, "gathered hidden states"), x.shape
    ctx.tape.record(y, (x,), (), lambda wants, g: (g.tape.new(part, g.dtype, "part of gradient"),))
    return y
