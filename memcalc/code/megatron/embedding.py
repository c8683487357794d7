"""The vocabulary-parallel table, and learned positions.

Sources: megatron/core/models/common/embeddings/language_model_embedding.py; tensor_parallel/layers.py (VocabParallelEmbedding).
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import parallel
from memcalc.code.megatron.options import options
from memcalc.components import Embedding
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


@runs(Embedding)
def embed(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """ids (batch, sequence) → (sequence, batch, hidden), this rank's part of the sequence under sequence parallelism."""
    ctx.holds_output = False
    weights = list(m.own_weights())
    x = rows_of_table(ctx, m, ids)
    order = (ctx.seq, ctx.batch, m.width)
    if m.positions:
        numbers = ctx.tape.new((ctx.batch, ctx.seq), "int64", "position_ids")
        x = F.add(x, F.embedding(numbers, ctx.parameter(weights[1]), m.width, "position embeddings"), "embeddings")
        del numbers
        x = in_order(x, order, "embeddings, sequence first")
        if parallel.is_split(ctx):
            x = part_of(ctx, x)
    else:
        x = in_order(x, order, "embeddings, sequence first")
        if parallel.is_split(ctx):
            x = parallel.scatter_sum(ctx, x, "embeddings / tp")
    chosen = options(ctx).hidden_dropout
    p = m.dropout if chosen is None else chosen
    return F.dropout(x, p) if p > 0 and ctx.settings.training else x


def rows_of_table(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Rows of this rank's part of the table; those of other ranks' ids are zeroed in place, and partial rows summed in place."""
    table = ctx.parameter(next(m.own_weights()), has_gradient=m.tied)
    if not ctx.has_tp:
        return F.embedding(ids, table, m.width, "embeddings")
    mask, masked = like(ids, "ids of other ranks", "bool"), like(ids, "masked ids")
    x = F.embedding(masked, table, m.width, "embeddings")
    zeroed = Tensor(x.tape, x.shape, x.dtype, x.storage)
    ctx.tape.record(zeroed, (x,), (mask,), lambda wants, g, mask: (like(g, "gradient without masked rows"),))
    return zeroed


def in_order(x: Tensor, shape: tuple[Axis, ...], name: str) -> Tensor:
    """``transpose(0, 1).contiguous()``; the gradient is a view, which the table's takes in its order."""
    out = x.tape.new(shape, x.dtype, name)
    back = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (Tensor(g.tape, back, g.dtype, g.storage),))
    return out


def part_of(ctx: Context, x: Tensor) -> Tensor:
    """This rank's part of the sequence, copied so that the whole can go (scatter_to_sequence_parallel_region, clone); the gradient is gathered."""
    out = ctx.tape.new((parallel.local_seq(ctx), *x.shape[1:]), x.dtype, "embeddings / tp")
    whole = x.shape
    ctx.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(whole, g.dtype, "gathered gradient of embeddings"),))
    return out
