"""Parts of Falcon's attention: how its fused projection is taken apart, and what its fused kernel falls back to."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.transformers.attention import repeat_kv, stack_sequences
from memcalc.code.transformers.project import QKV, head_shapes, indexed
from memcalc.components import FalconAttention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def split_falcon(ctx: Context, m: FalconAttention, fused: Tensor) -> QKV:
    """Queries, keys and values (FalconAttention._split_heads): keys and values are copied out by index, for each query of a group where there are groups."""
    heads, kv_heads = head_shapes(ctx, m)
    if m.grouped:
        query = F.clone(F.narrow(fused, heads), "query in order")
        key, value = F.index(fused, kv_heads, "key"), F.index(fused, kv_heads, "value")
        return query, F.repeat(key, heads, "key for each query"), F.repeat(value, heads, "value for each query")
    if m.num_kv_heads == m.num_heads:
        return indexed(fused, (heads, kv_heads))
    query = F.narrow(fused, heads)
    key = F.index(fused, kv_heads, "key")
    return query, key, F.index(fused, kv_heads, "value")


def written_out(ctx: Context, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor) -> Tensor:
    """Scores in full, in fp32, where no fused kernel takes one KV head for all (_scaled_dot_product_attention_math)."""
    dtype, heads = query.dtype, query.shape[1]
    wide = [F.cast(t, "float32", f"{name} in fp32") for t, name in ((query, "query"), (key, "key"), (value, "value"))]
    scaled = [F.scale(wide[0], "scaled query"), F.scale(wide[1], "scaled key")]
    left = stack_sequences(ctx, scaled[0], "query in order", is_stacked=False)
    right = stack_sequences(ctx, repeat_kv(scaled.pop(), heads), "key in order", is_stacked=False)
    shape = (ctx.batch, heads, query.shape[2], Axis("keys", key.shape[2].size))
    scores = F.matmul(left, right, shape, "scores")
    del left, right
    scores = F.add(scores, mask, "masked scores")
    probabilities = F.softmax(scores, name="probabilities")
    del scores
    with ctx.tape.no_grad():
        returned = F.cast(probabilities, dtype, "probabilities in the dtype of the model")
    out = F.matmul(probabilities, stack_sequences(ctx, repeat_kv(wide[2], heads), "value in order", is_stacked=False), query.shape, "attention output in fp32")
    del probabilities
    out = F.cast(out, dtype, "attention output")
    del returned, scaled, wide
    return out
