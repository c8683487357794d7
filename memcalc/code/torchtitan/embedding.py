"""The token table; angles are a buffer of the model."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.parallel import gathered, scattered
from memcalc.components import Embedding
from memcalc.specs.model import Axis, shard
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(Embedding)
def tok_embeddings(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """ids (batch, seq) → (batch, seq / tp, hidden). The model's forward rebinds what the table gives."""
    ctx.holds_output = False
    table = next(m.own_weights())
    weight = ctx.parameter(table, has_gradient=m.tied)
    return parallel(ctx, m, weight, ids) if ctx.has_tp else F.embedding(ids, weight, m.width, "tok_embeddings")


def parallel(ctx: Context, m: Embedding, weight: Tensor, ids: Tensor) -> Tensor:
    """Rows of this rank's part of the table, zero for other tokens, summed and scattered along the sequence (RowwiseParallel, _MaskPartial).

    DTensor has no strategy for the gradient of a table that is cut along its rows: each rank makes it whole, and takes its part.
    """
    tape, dtype, part = ctx.tape, weight.dtype, weight.shape
    rows = tape.new((*ids.shape, m.width), dtype, "partial tok_embeddings")
    y = scattered(ctx, rows, (ctx.batch, shard(ctx.seq, ctx.settings.tp), m.width), "tok_embeddings")
    del rows
    whole = (Axis("vocab_size", m.vocab.size), m.width)

    def backward(wants: tuple[bool, ...], g: Tensor, ids: Tensor) -> tuple[Tensor]:
        every = gathered(ctx, (ctx.batch, ctx.seq, m.width), dtype, "gathered gradient")
        table = tape.new(whole, dtype, "gradient of the whole table")
        del every
        mine = tape.new(part, dtype, "gradient of table")
        del table
        return (mine,)

    tape.record(y, (weight,), (ids,), backward)
    return y
