"""The indexer of DeepSeek-V3.2: which keys each query attends to, as a mask. It runs without gradient, in training too."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.transformers.rotary import rotate
from memcalc.components import Rotary
from memcalc.components.mla import Indexer
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.span import maximum
from memcalc.tape.tensor import Tensor


def sparse_mask(ctx: Context, m: Indexer | int, x: Tensor, latent_q: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The causal mask with all but the chosen keys masked out, and what the attention holds beside it (DeepseekV32Attention.forward).

    Where an earlier layer has picked so many keys, which the model's forward holds, there is a number in the place of an indexer.

    Returns:
        the mask, (batch, seq, keys) as bools for the fused kernel or added for eager attention; the indices; the flags made of them.
    """
    tape = ctx.tape
    with tape.no_grad(), ctx.inside("indexer"):
        indices = Tensor(tape, (ctx.batch, ctx.seq, limited(ctx, m)), "int32", None) if isinstance(m, int) else choose(ctx, m, x, latent_q, mask)
        square = (ctx.batch, ctx.seq, Axis("keys", ctx.seq.size))
        ones, wide = tape.new(square, "bool", "ones"), tape.new(indices.shape, "int64", "indices as int64")
        flags = tape.new(square, "bool", "keys left out")
        del ones, wide
        if ctx.settings.attention == "eager":
            return tape.new(square, mask.dtype, "sparse mask"), indices, flags
        inverted = tape.new(square, "bool", "chosen keys")
        sparse = tape.new(square, "bool", "sparse mask")
        del inverted
        return sparse, indices, flags


def choose(ctx: Context, m: Indexer, x: Tensor, latent_q: Tensor, mask: Tensor) -> Tensor:
    """int32 indices (batch, seq, top_k) of the best keys (DeepseekV32Indexer.forward).

    Every head's queries are multiplied with the keys by a batched product, for which the keys are copied once for each query: by far the
    largest tensor here. All named tensors are held to the end.
    """
    tape, dim, rope = ctx.tape, Axis("index_head_dim", m.head_dim), Axis("qk_rope_head_dim", m.rope_dim)
    heads, keys, rest = Axis("index_n_heads", m.num_heads), Axis("keys", ctx.seq.size), Axis("index_head_dim - rope", m.head_dim - m.rope_dim)
    q = F.view(ctx.run(m.wq_b, latent_q), (ctx.batch, ctx.seq, heads, dim))
    q_rot, q_pass = F.split_last(q, (rope, rest))
    k = F.view(ctx.run(m.k_norm, ctx.run(m.wk, x), "k_norm"), (ctx.batch, ctx.seq, Axis("1", 1), dim))
    k_rot, k_pass = F.split_last(k, (rope, rest))
    q_rot, k_rot = rotate(ctx, Rotary(m.rope_dim, m.style), q_rot, k_rot)
    q = F.cat((q_rot, q_pass), dim, "index query")
    k = F.cat((k_rot, k_pass), dim, "index key")
    k = ctx.remember(k, "index key")
    scores = heads_scores(ctx, q, k, (heads, dim, keys))
    scores = F.keeps_result(scores, "relu of index scores")
    weights = F.cast(ctx.run(m.weights_proj, F.cast(x, ctx.settings.dtype)), "float32", "head weights in fp32")
    weights = F.scale(weights, "head weights")
    index_scores = tape.new((ctx.batch, ctx.seq, keys), "float32", "index scores")
    if mask.dtype == "bool":
        inverted = tape.new(index_scores.shape, "bool", "masked keys")
        index_scores = F.like(index_scores, "masked index scores")
        del inverted
    else:
        index_scores = F.like(index_scores, "masked index scores")
    return F.cast(routing.topk(index_scores, limited(ctx, m.top_k), "chosen keys")[1], "int32", "indices")


def limited(ctx: Context, top_k: int) -> Axis:
    """So many keys, or all where there are fewer."""
    return Axis("index_topk", top_k + ctx.seq.size - maximum(top_k, ctx.seq.size))


def heads_scores(ctx: Context, q: Tensor, k: Tensor, axes: tuple[Axis, Axis, Axis]) -> Tensor:
    """Scores (batch, seq, heads, keys) in fp32; the keys are spread over the queries, and copied for it where there are several sequences."""
    heads, dim, keys = axes
    wide_q, wide_k = F.cast(q, "float32", "index query in fp32"), F.cast(k, "float32", "index key in fp32")
    is_single = ctx.has_one_sequence
    spread = None if is_single else ctx.tape.new((ctx.batch, ctx.seq, dim, keys), "float32", "keys copied for each query")
    scores = ctx.tape.new((ctx.batch, ctx.seq, heads, keys), "float32", "index scores of heads")
    del spread, wide_q, wide_k
    return F.scale(scores, "scaled index scores")
