"""DeBERTa 2 and 3: attention to content and to distances."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.components.deberta import DisentangledAttention, Distances
from memcalc.components.linear import Linear
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.functional.routing import add_in_place
from memcalc.tape.tensor import Tensor

MASK, DISTANCES, TABLE = "attention mask", "relative positions", "rel_embeddings"


@runs(Distances)
def distances(ctx: Context, m: Distances, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; leaves a mask, distances and the table in ``ctx.shared`` (the beginning of DebertaV2Encoder.forward)."""
    one, keys = Axis("one", 1), Axis("keys", ctx.seq.size)
    ctx.shared[MASK] = ctx.tape.new((ctx.batch, one, ctx.seq, keys), ctx.settings.dtype, MASK)
    if m.rows:
        ctx.shared[DISTANCES] = relative(ctx, m, keys)
        table = ctx.parameter(next(m.own_weights()))
        ctx.shared[TABLE] = table if m.norm is None else ctx.run(m.norm, table, "LayerNorm")
    return x


def relative(ctx: Context, m: Distances, keys: Axis) -> Tensor:
    """Distances of all pairs, in 64-bit integers, and what is made on the way to buckets (build_relative_position, make_log_bucket_position)."""
    square = (ctx.seq, keys)
    plain = ctx.tape.new(square, "int64", "distances")
    if not m.bucketed:
        return plain
    sign, inner = ctx.tape.new(square, "int64", "sign"), ctx.tape.new(square, "int64", "absolute distance")
    absolute = ctx.tape.new(square, "int64", "absolute distance or middle")
    del inner
    bucket = ctx.tape.new(square, ctx.settings.dtype, "bucket")
    found = ctx.tape.new(square, "int64", DISTANCES)
    del plain, sign, absolute, bucket
    return found


@runs(DisentangledAttention)
def attention(ctx: Context, m: DisentangledAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (DisentangledSelfAttention.forward, and the projection of DebertaV2SelfOutput)."""
    query, key, value = (by_head(ctx, m, proj, x) for proj in (m.query_proj, m.key_proj, m.value_proj))
    square = (*query.shape[:3], Axis("keys", ctx.seq.size))
    scores = F.matmul(query, F.scale(key, "key / scale"), square, "scores")
    bias = by_distance(ctx, m, query, key) if m.rows else None
    if bias is not None:
        scores = F.add(scores, bias, "scores + bias")
    flags = ctx.tape.new(ctx.shared[MASK].shape, "bool", "mask flags")
    masked = F.masked_fill(scores, ctx.tape.new(flags.shape, "bool", "hidden pairs"), "masked scores")
    del scores
    probabilities = dropout(ctx, F.softmax(masked, name="probabilities"), m.dropout)
    out = F.matmul(probabilities, value, query.shape, "attention output")
    out = F.clone(out, "attention output in order")
    del flags, bias, masked, probabilities
    return ctx.run(m.o, F.view(out, (ctx.batch, ctx.seq, m.o.inputs)))


def by_head(ctx: Context, m: DisentangledAttention, proj: Linear, x: Tensor) -> Tensor:
    """A projection of x (rows, tokens, hidden), copied so that heads stand before tokens (transpose_for_scores)."""
    made = ctx.run(proj, x)
    heads = (x.shape[0], Axis("num_heads", m.num_heads), x.shape[1], Axis("head_dim", m.head_dim))
    return scan.reordered(made, heads, f"{proj.name} by head")


def by_distance(ctx: Context, m: DisentangledAttention, query: Tensor, key: Tensor) -> Tensor:
    """What the scores of all pairs get for their distance (disentangled_attention_bias)."""
    whole = ctx.shared[TABLE]
    if whole.requires_grad:
        ctx.differentiable.add(TABLE)
    table = F.view(dropout(ctx, whole, m.table_dropout), (Axis("one", 1), *whole.shape))
    both = [proj for proj in (m.pos_key_proj, m.pos_query_proj) if proj is not None] or [m.query_proj, m.key_proj]
    made = {proj.name: for_each(ctx, by_head(ctx, m, proj, table), query) for proj in both}
    found: Tensor | None = None
    held: list[Tensor] = []
    for side, name, wanted in ((query, "key", m.to_position), (key, "query", m.from_position)):
        if wanted:
            of_position = next(tensor for proj, tensor in made.items() if name in proj)
            columns = columns_of(ctx)
            part = looked_up(F.matmul(side, of_position, (*side.shape[:3], whole.shape[0]), f"scores of {name} distances"), columns)
            held += [part, columns]
            found = add_up(found, F.scale(part, "part of bias"))
    assert found is not None
    held.clear()
    return found


def add_up(found: Tensor | None, part: Tensor) -> Tensor:
    """``score += part``, where score is 0 at first."""
    if found is None:
        return F.add_scalar(part, "bias")
    return add_in_place(found, part)


def for_each(ctx: Context, x: Tensor, like: Tensor) -> Tensor:
    """Heads of the table, copied for each sequence."""
    return F.repeat(x, (like.shape[0], *x.shape[1:]), "for each sequence")


def columns_of(ctx: Context) -> Tensor:
    """For each pair of tokens, the row of the table that its distance has, in 64-bit integers."""
    shape = ctx.shared[DISTANCES].shape
    shifted = ctx.tape.new(shape, "int64", "shifted distances")
    columns = ctx.tape.new(shape, "int64", "columns")
    del shifted
    return columns


def looked_up(x: Tensor, columns: Tensor) -> Tensor:
    """Each pair's own column of x (batch, heads, tokens, rows): (batch, heads, tokens, tokens). Saves x and the columns."""
    out, whole = x.tape.new((*x.shape[:3], columns.shape[1]), x.dtype, "scores by distance"), x.shape

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor]:
        zeros = g.tape.new(whole, g.dtype, "zeros")
        made = F.like(zeros, "gradient of scores by distance")
        del zeros
        return (made,)

    x.tape.record(out, (x,), (x, columns), backward)
    return out
