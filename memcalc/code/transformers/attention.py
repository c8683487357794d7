"""Attention: eager (scores and probabilities in full) and the fused kernels."""

from __future__ import annotations

from memcalc.code import ring
from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.mask import mask_name
from memcalc.code.transformers.project import over_projection, project
from memcalc.code.transformers.prompt import with_prefix
from memcalc.code.transformers.rotary import puts_heads_first, rotate
from memcalc.code.transformers.unpad import attend_unpadded
from memcalc.components import Attention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Shape, Tensor


@runs(Attention)
def attention(ctx: Context, m: Attention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (LlamaAttention.forward and its relatives)."""
    query, key, value = project(ctx, m, x)
    held = [value] if m.k is None and m.layout not in ("split", "shared") else []
    if not m.norm_after_rotary:
        query, key = normalise(ctx, m, query, key)
    if m.rotary is not None:
        query, key = rotate(ctx, m.rotary, query, key, held=held)
    if m.norm_after_rotary:
        query, key = normalise(ctx, m, query, key)
    if m.tempered:
        query = temper(ctx, query)
    key, value = ctx.remember(key, "key", window=m.window), ctx.remember(value, "value", window=m.window)
    if ctx.settings.prefix:
        key, value = with_prefix(ctx, key, value)
    out = merge(ctx, m, attend(ctx, m, query, key, value))
    held.clear()
    return out


def normalise(ctx: Context, m: Attention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys after the norms of each head, where there are any."""
    if m.q_norm is not None and not over_projection(m.q_norm, m):
        query = ctx.run(m.q_norm, query, "q_norm")
    if m.k_norm is not None and not over_projection(m.q_norm, m):
        key = ctx.run(m.k_norm, key, "k_norm")
    return query, key


def temper(ctx: Context, query: Tensor) -> Tensor:
    """Queries times a number for each position (get_llama_4_attn_scale)."""
    scale = ctx.tape.new((ctx.seq, Axis("1", 1)), query.dtype, "scale of each position")
    return F.mul(query, scale, "scaled query")


def merge(ctx: Context, m: Attention, out: Tensor) -> Tensor:
    """The heads side by side again, through the output projection."""
    flat = Axis("heads * head_dim", out.shape[1].size * out.shape[-1].size)
    out = F.view(out, (ctx.batch, ctx.seq, flat))
    if "o" in ctx.settings.lora_kernels:
        from memcalc.code.transformers import lora_kernels

        if lora_kernels.are_fused(ctx, "o", m.o):
            return lora_kernels.output(ctx, m.o, out)
    return ctx.run(m.o, out)


def attend(ctx: Context, m: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The attention interface of the run: eager, or one fused kernel; (batch, heads, seq, head_dim) in, the same out.

    The fused kernel shares KV heads by itself as long as it gets no mask and heads are at most 256 wide; otherwise keys and values are
    repeated first, and the bools become a mask in the queries' dtype (sdpa_attention_forward, use_gqa_in_sdpa). Its dropout saves no mask.
    Its output is laid out as the queries are: where heads stand before tokens in memory, it is copied into order.
    """
    if ctx.has_cp:
        return ring.attend(ctx.tape, ctx.settings.cp, query, key, value)
    if ctx.settings.takes_apart:
        return attend_unpadded(ctx, query, key, value)
    mask = ctx.shared.get(mask_name(m.window, causal=m.causal))
    if ctx.settings.attention == "eager":
        return eager(ctx, m, query, key, value, mask=mask)
    bias = None if mask is None else ctx.tape.new((ctx.batch, *mask.shape[-2:]), ctx.settings.autocast or query.dtype, "mask")
    if mask is not None or m.head_dim > MAX_SHARED_HEAD_DIM:
        key, value = repeat_kv(key, query.shape[1]), repeat_kv(value, query.shape[1])
    out = F.scaled_dot_product_attention(query, key, value, mask=bias)
    return F.clone(out, "attention output in order") if puts_heads_first(ctx, m.rotary) else out


MAX_SHARED_HEAD_DIM = 256
"""Wider heads take another kernel, which cannot share KV heads."""


def eager(ctx: Context, m: Attention, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None) -> Tensor:
    """Scores in full, squashed where the model does, softmax in the precision it has (eager_attention_forward)."""
    heads, dtype = query.shape[1], value.dtype
    key, value = repeat_kv(key, heads), repeat_kv(value, heads)
    if m.softmax == "scores":
        query, key = F.cast(query, "float32", "query in fp32"), F.cast(key, "float32", "key in fp32")
    scores = score(ctx, m, query, key)
    if m.softcap is not None:
        scores = F.scale(F.tanh(F.scale(scores, "scores / cap"), "squashed scores"), "capped scores")
    if mask is not None:
        scores = F.add(scores, mask, "masked scores")
    scores = F.cast(F.softmax(scores, "float32" if m.softmax == "fp32" else None, "probabilities in full precision"), dtype, "probabilities")
    scores = dropout(ctx, scores, m.dropout)
    give(ctx, scores)
    return combine(ctx, m, scores, value, (*query.shape[:-1], value.shape[-1]))


def give(ctx: Context, probabilities: Tensor) -> None:
    """Probabilities are returned beside the output: the layer that runs may have a variable for them."""
    if ctx.probabilities is not None:
        ctx.probabilities.append(probabilities)


def score(ctx: Context, m: Attention, query: Tensor, key: Tensor, *, scaled: bool = True) -> Tensor:
    """Scores of all pairs: (batch, heads, queries, keys)."""
    shape = (ctx.batch, query.shape[1], query.shape[2], Axis("keys", key.shape[2].size))
    is_joined = puts_heads_first(ctx, m.rotary)
    query, key = (
        stack_sequences(ctx, query, "query in order", is_stacked=is_joined),
        stack_sequences(ctx, key, "key in order", is_stacked=is_joined or is_repeated(ctx, m)),
    )
    scores = F.matmul(query, key, shape, "scores")
    return F.scale(scores, "scaled scores") if scaled else scores


def combine(ctx: Context, m: Attention, probabilities: Tensor, value: Tensor, shape: Shape) -> Tensor:
    """Values weighted by probabilities, copied so that tokens stand before heads again."""
    out = F.matmul(probabilities, stack_sequences(ctx, value, "value in order", is_stacked=is_repeated(ctx, m)), shape, "attention output")
    return F.clone(out, "attention output in order")


def stack_sequences(ctx: Context, x: Tensor, name: str, *, is_stacked: bool) -> Tensor:
    """x as a batched product takes it, with batch and heads in one axis (at::matmul).

    That is a copy where heads of one sequence do not lie right behind each other in memory and there are several sequences; an array of
    batch sizes counts as several.

    Args:
        is_stacked: they do lie so.
    """
    is_single = ctx.has_one_sequence
    return x if is_stacked or is_single else F.clone(x, name)


def is_repeated(ctx: Context, m: Attention) -> bool:
    """Whether keys and values are fresh copies, by `repeat_kv` or in the cache."""
    return 1 < m.num_kv_heads < m.num_heads or not (ctx.settings.training or m.num_kv_heads == 1)


def repeat_kv(x: Tensor, heads: Axis) -> Tensor:
    """Each KV head copied for the query heads that share it (repeat_kv); x itself when there is nothing to share, and a view of a lone one."""
    if isinstance(x.shape[1].size, int) and x.shape[1].size == heads.size:
        return x
    if isinstance(x.shape[1].size, int) and x.shape[1].size == 1:
        return F.expand(x, (x.shape[0], heads, *x.shape[2:]))
    return F.repeat(x, (x.shape[0], heads, *x.shape[2:]), "repeated KV")
