"""Attention of models whose code scores queries and keys in steps of its own: GPT-Neo, BLOOM, MPT, Falcon."""

from __future__ import annotations

from memcalc.code import ring
from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import combine, give, merge, repeat_kv, score, stack_sequences
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.falcon import split_falcon, written_out
from memcalc.code.transformers.mask import mask_name
from memcalc.code.transformers.project import project
from memcalc.code.transformers.rotary import rotate
from memcalc.components import BaichuanAttention, BloomAttention, FalconAttention, GPTNeoAttention, MptAttention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.matmul import under_autocast, without_autocast
from memcalc.tape.tensor import Tensor


@runs(GPTNeoAttention)
def gpt_neo(ctx: Context, m: GPTNeoAttention, x: Tensor) -> Tensor:
    """Scores in fp32, cut by a buffer, then by the model's mask (GPTNeoSelfAttention._attn)."""
    query, key, value = project(ctx, m, x)
    key, value = ctx.remember(key, "key"), ctx.remember(value, "value")
    wide_q, wide_k = F.cast(query, "float32", "query in fp32"), F.cast(key, "float32", "key in fp32")
    scores = F.masked_fill(score(ctx, m, wide_q, wide_k, scaled=False), None, "cut scores")
    scores = F.add(scores, ctx.shared[mask_name(None)], "masked scores")
    scores = F.softmax(scores, name="probabilities in fp32")
    scores = dropout(ctx, F.cast(scores, value.dtype, "probabilities"), m.dropout)
    give(ctx, scores)
    out = combine(ctx, m, scores, value, query.shape)
    del wide_q, wide_k
    return merge(ctx, m, out)


@runs(BloomAttention)
def bloom(ctx: Context, m: BloomAttention, x: Tensor) -> Tensor:
    """Bias and scores in one product; unmasked and masked scores are held to the end (BloomAttention.forward)."""
    query, key, value = project(ctx, m, x)
    key, value = ctx.remember(key, "key"), ctx.remember(value, "value")
    cached = not ctx.settings.training
    parts = [stack_sequences(ctx, query, "query in order", is_stacked=False)]
    parts += [stack_sequences(ctx, t, f"{name} in order", is_stacked=cached) for t, name in ((key, "key"), (value, "value"))]
    shape = (ctx.batch, query.shape[1], query.shape[2], Axis("keys", key.shape[2].size))
    scores = F.baddbmm(ctx.shared["alibi"], parts[0], parts[1], shape, "scores")
    masked = F.add(scores, ctx.shared[mask_name(None)], "masked scores")
    probabilities = F.cast(F.softmax(masked, "float32", "probabilities in fp32"), query.dtype, "probabilities")
    probabilities = dropout(ctx, probabilities, m.dropout)
    give(ctx, probabilities)
    out = F.matmul(probabilities, parts[2], query.shape, "attention output")
    out = F.clone(out, "attention output in order")
    del parts, scores
    return merge(ctx, m, out)


@runs(MptAttention)
def mpt(ctx: Context, m: MptAttention, x: Tensor) -> Tensor:
    """The bias, in fp32, makes scores fp32; masked ones are held to the end (MptAttention.forward)."""
    query, key, value = project(ctx, m, x)
    key, value = ctx.remember(key, "key"), ctx.remember(value, "value")
    scores = F.add(score(ctx, m, query, key), ctx.shared["alibi"], "scores with bias")
    scores = F.masked_fill(scores, ctx.shared[mask_name(None)], "masked scores")
    probabilities = F.cast(F.softmax(scores, name="probabilities in fp32"), value.dtype, "probabilities")
    probabilities = dropout(ctx, probabilities, m.dropout)
    give(ctx, probabilities)
    return merge(ctx, m, combine(ctx, m, probabilities, value, query.shape))


@runs(BaichuanAttention)
def baichuan(ctx: Context, m: BaichuanAttention, x: Tensor) -> Tensor:
    """One fused kernel in training; in inference masked scores are held to a lower bound, with a softmax in the dtype of the model."""
    query, key, value = project(ctx, m, x)
    key, value = ctx.remember(key, "key"), ctx.remember(value, "value")
    if ctx.settings.training:
        return merge(ctx, m, F.scaled_dot_product_attention(query, key, value, mask=ctx.shared[mask_name(None)]))
    scores = F.add_scalar(score(ctx, m, query, key), "masked scores")
    scores = F.softmax(F.masked_fill(scores, None, "bounded scores"), name="probabilities")
    return merge(ctx, m, combine(ctx, m, scores, value, query.shape))


@runs(FalconAttention)
def falcon(ctx: Context, m: FalconAttention, x: Tensor) -> Tensor:
    """Eager, or the fused kernel, which gets a mask each time and cannot take it where heads share keys (FalconAttention.forward)."""
    fused = ctx.run(m.q, x)
    query, key, value = split_falcon(ctx, m, fused)
    if m.rotary is not None and not m.alibi:
        query, key = rotate(ctx, m.rotary, query, key)
    key, value = ctx.remember(key, "key"), ctx.remember(value, "value")
    out = merge(ctx, m, attend_falcon(ctx, m, query, key, value))
    del fused
    return out


def attend_falcon(ctx: Context, m: FalconAttention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The attention of the run, whose fused kernel gets a mask unless it is FlashAttention's own."""
    if ctx.has_cp:
        return ring.attend(ctx.tape, ctx.settings.cp, query, key, value)
    mask = ctx.shared.get(mask_name(None))
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    if ctx.settings.attention == "eager":
        return (with_alibi if m.alibi else in_place)(ctx, m, query, key, value, mask=mask)
    if not m.alibi:
        mask = ctx.tape.new((ctx.batch, *mask.shape), ctx.settings.autocast or query.dtype, "mask")
    if key.shape[1].size == query.shape[1].size:
        return F.scaled_dot_product_attention(query, key, value, mask=mask)
    parts = [under_autocast(t) for t in (query, key, value)]
    with without_autocast(ctx.tape):
        out = written_out(ctx, *parts, mask=mask)
    del parts
    return F.clone(out, "attention output in order")


def in_place(ctx: Context, m: FalconAttention, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor) -> Tensor:
    """Scores scaled in place; probabilities in the dtype of the model."""
    heads = query.shape[1]
    scores = F.scale_in_place(score(ctx, m, query, repeat_kv(key, heads), scaled=False))
    scores = F.softmax(F.add(scores, mask, "masked scores"), name="probabilities")
    give(ctx, scores)
    return combine(ctx, m, scores, repeat_kv(value, heads), query.shape)


def with_alibi(ctx: Context, m: FalconAttention, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor) -> Tensor:
    """Scores, their fp32 copy and its sum with the bias are held to the end; probabilities in the dtype of the model."""
    scores = score(ctx, m, query, key, scaled=False)
    wide = F.cast(scores, "float32", "scores in fp32")
    biased = F.scale_in_place(F.add(wide, ctx.shared["alibi"], "scores with bias"))
    probabilities = F.softmax(F.cast(F.add(biased, mask, "masked scores"), query.dtype, "scores"), name="probabilities")
    probabilities = dropout(ctx, probabilities, m.dropout)
    give(ctx, probabilities)
    return combine(ctx, m, probabilities, value, query.shape)
