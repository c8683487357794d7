"""Core attention: fused, over context-parallel ranks, or operator by operator (megatron/core/transformer/dot_product_attention.py)."""

from __future__ import annotations

from memcalc.code.checkpoint import checkpoint
from memcalc.code.context import Context
from memcalc.code.megatron.context_parallel import over_ranks
from memcalc.code.megatron.kernels import batch_first, contiguous, flatten, kernel
from memcalc.code.megatron.options import options
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def core_attention(ctx: Context, query: Tensor, key: Tensor, value: Tensor, *, dropout: float, packed: bool = True) -> Tensor:
    """(sequence, batch, heads, head_dim) → (sequence, batch, heads * head_dim), run again in backward where ``core_attn`` is recomputed.

    `packed`: values, and perhaps keys and queries, are views of one tensor.
    """
    chosen = options(ctx).attention_dropout
    p = dropout if chosen is None else chosen

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if ctx.settings.attention == "eager":
            return unfused(ctx, query, key, value, dropout=p)
        if packed:
            query, key, value = contiguous(query, key, value)
        if ctx.has_cp:
            return over_ranks(ctx, query, key, value)
        return fused(ctx, query, key, value)

    with ctx.inside("core_attention"):
        if "core_attn" in options(ctx).recompute and ctx.settings.training:
            return checkpoint(ctx, attend, query, key, value)
        return attend(query, key, value)


def fused(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """cuDNN's kernel, or flash-attention 2."""
    return batch_first(query, key, value) if ctx.settings.attention == "flash_attention_2" else flatten(kernel(query, key, value))


def unfused(ctx: Context, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
    """Scores in full: scaled by the product, masked and normalised by one kernel, which saves the probabilities; dropout keeps its mask.

    With grouped queries keys and values are repeated. The scores stand in Megatron's global buffer, which is resident.
    """
    tape, heads = ctx.tape, query.shape[2]
    if not (isinstance(heads.size, int) and heads.size == key.shape[2].size):
        key, value = (F.repeat(x, (*x.shape[:2], heads, x.shape[3]), f"repeated {n}") for x, n in ((key, "key"), (value, "value")))
    square = (query.shape[1], heads, query.shape[0], Axis("keys", key.shape[0].size))
    scores = F.matmul(query, key, square, "scores")
    probs = F.softmax(scores, name="probabilities")
    del scores
    if dropout > 0 and ctx.settings.training:
        probs = F.dropout(probs, dropout)
    out = F.matmul(probs, value, (query.shape[1], heads, query.shape[0], value.shape[-1]), "attention output by head")
    del probs, key, value
    rows = (*query.shape[:-1], out.shape[-1])
    final = tape.new(rows, out.dtype, "attention output")
    back = out.shape
    tape.record(final, (out,), (), lambda wants, g: (tape.new(back, g.dtype, "gradient by head"),))
    return flatten(final)
