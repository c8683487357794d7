"""Attention: eager (scores and probabilities in full) and the fused kernels."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.mask import mask_name
from memcalc.components import Attention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(Attention)
def attention(ctx: Context, m: Attention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (LlamaAttention.forward and its relatives)."""
    query, key, value = project(ctx, m, x)
    if m.rotary is not None:
        query, key = rotate(ctx, query, "query"), rotate(ctx, key, "key")
    key, value = ctx.remember(key, "key"), ctx.remember(value, "value")
    out = attend(ctx, m, query, key, value)
    flat = Axis("heads * head_dim", out.shape[1].size * out.shape[-1].size)
    return ctx.run(m.o, F.view(out, (ctx.batch, ctx.seq, flat)))


def project(ctx: Context, m: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (batch, heads, seq, head_dim), keys and values (batch, kv_heads, seq, head_dim), normalised where the model does."""
    tp, dim = ctx.settings.tp, Axis("head_dim", m.head_dim)
    heads = (ctx.batch, Axis("heads", m.num_heads // tp), ctx.seq, dim)
    kv_heads = (ctx.batch, Axis("kv_heads", m.num_kv_heads // tp), ctx.seq, dim)
    if m.k is None or m.v is None:
        q_all, kv_all = Axis("heads * head_dim", heads[1].size * dim.size), Axis("kv_heads * head_dim", kv_heads[1].size * dim.size)
        q, k, v = F.split_last(ctx.run(m.q, x), (q_all, kv_all, kv_all))
    else:
        q, k, v = ctx.run(m.q, x), ctx.run(m.k, x), ctx.run(m.v, x)
    query, key, value = F.split_heads(q, heads), F.split_heads(k, kv_heads), F.split_heads(v, kv_heads)
    del q, k, v
    if m.q_norm is not None:
        query = ctx.run(m.q_norm, query, "q_norm")
    if m.k_norm is not None:
        key = ctx.run(m.k_norm, key, "k_norm")
    return query, key, value


def rotate(ctx: Context, x: Tensor, name: str) -> Tensor:
    """``x * cos + rotate_half(x) * sin``; saves only the shared angles (apply_rotary_pos_emb)."""
    return F.add(F.mul(x, ctx.shared["cos"], f"{name} * cos"), F.mul(rotate_half(x), ctx.shared["sin"], f"{name} * sin"), name)


def rotate_half(x: Tensor) -> Tensor:
    """``cat(-x2, x1)``."""
    half = Axis("head_dim/2", x.shape[-1].size // 2)
    first, second = F.slice_last(x, half), F.slice_last(x, half)
    return F.cat((F.neg(second), first), x.shape[-1], "rotated half")


def attend(ctx: Context, m: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The attention interface of the run: eager, or one fused kernel; (batch, heads, seq, head_dim) in, the same out.

    The fused kernel shares KV heads by itself as long as it gets no mask; with one, keys and values are repeated first and the
    bools become a mask in the queries' dtype (sdpa_attention_forward, use_gqa_in_sdpa).
    """
    mask = ctx.shared.get(mask_name(m.window))
    if ctx.settings.attention == "eager":
        return eager(ctx, m, query, key, value, mask)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    key, value = repeat_kv(key, query.shape[1]), repeat_kv(value, query.shape[1])
    bias = ctx.tape.new((ctx.batch, *mask.shape), query.dtype, "mask")
    return F.scaled_dot_product_attention(query, key, value, mask=bias)


def eager(ctx: Context, m: Attention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Scores in full, softmax in fp32 (eager_attention_forward)."""
    heads = query.shape[1]
    key, value = repeat_kv(key, heads), repeat_kv(value, heads)
    shape = (ctx.batch, heads, query.shape[2], Axis("keys", key.shape[2].size))
    scores = F.scale(F.matmul(F.clone(query, "query in order"), key, shape, "scores"), "scaled scores")
    if mask is not None:
        scores = F.add(scores, mask, "masked scores")
    scores = F.cast(F.softmax(scores, "float32", "probabilities in fp32"), query.dtype, "probabilities")
    out = F.matmul(scores, value, query.shape, "attention output")
    return F.clone(out, "attention output in order")


def repeat_kv(x: Tensor, heads: Axis) -> Tensor:
    """Each KV head copied for the query heads that share it (repeat_kv); x itself when there is nothing to share."""
    if isinstance(x.shape[1].size, int) and x.shape[1].size == heads.size:
        return x
    return F.repeat(x, (x.shape[0], heads, *x.shape[2:]), "repeated KV")
