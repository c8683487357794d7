"""MPNet: scores with a bias for distances."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import combine, merge, score
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.project import project
from memcalc.components.mpnet import BiasedAttention, DistanceBias
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.routing import add_in_place
from memcalc.tape.tensor import Tensor

BIAS = "position bias"


@runs(DistanceBias)
def distance_bias(ctx: Context, m: DistanceBias, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; leaves a bias (batch, heads, seq, seq) in ``ctx.shared`` (MPNetEncoder.compute_position_bias)."""
    heads, keys = Axis("num_attention_heads", m.num_heads), Axis("keys", ctx.seq.size)
    rows = F.embedding(buckets(ctx, keys), ctx.parameter(next(m.own_weights())), heads, "bias of each distance")
    ctx.shared[BIAS] = F.repeat(rows, (ctx.batch, heads, ctx.seq, keys), BIAS)
    return x


def buckets(ctx: Context, keys: Axis) -> Tensor:
    """The bucket of each pair of tokens, in 64-bit integers, and what is made on the way (relative_position_bucket)."""
    tape, square = ctx.tape, (ctx.seq, keys)
    relative, found = tape.new(square, "int64", "relative positions"), tape.new(square, "int64", "buckets")
    distance, is_small = tape.new(square, "int64", "distance"), tape.new(square, "bool", "is_small")
    large = [tape.new(square, "int64", name) for name in ("bucket of a large distance", "the last bucket", "the lesser of both")]
    del large[:2]
    chosen = tape.new(square, "int64", "chosen bucket")
    del relative, distance, is_small, large, chosen
    return found


@runs(BiasedAttention)
def attention(ctx: Context, m: BiasedAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MPNetSelfAttention.forward); a mask is added where the batch is padded."""
    query, key, value = project(ctx, m, x)
    scores = add_in_place(score(ctx, m, query, key), ctx.shared[BIAS])
    if ctx.settings.padded:
        one = Axis("one", 1)
        scores = F.add(scores, ctx.tape.new((ctx.batch, one, one, scores.shape[-1]), scores.dtype, "mask"), "masked scores")
    probabilities = dropout(ctx, F.softmax(scores, name="probabilities"), m.dropout)
    out = merge(ctx, m, combine(ctx, m, probabilities, value, query.shape))
    del key, scores, probabilities
    return out
