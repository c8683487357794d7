"""Eager attention with sinks, as gpt-oss's code writes it out in the model's dtype."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import merge, repeat_kv
from memcalc.code.transformers.mask import mask_name
from memcalc.code.transformers.project import project
from memcalc.code.transformers.rotary import rotate
from memcalc.components.attention_sinks import SinkAttention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import sub
from memcalc.tape.functional.routing import topk
from memcalc.tape.functional.shape import expand
from memcalc.tape.tensor import Tensor


@runs(SinkAttention)
def sink_attention(ctx: Context, m: SinkAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (GptOssAttention.forward). The fused kernel takes the sinks as they are."""
    query, key, value = project(ctx, m, x)
    if m.rotary is not None:
        query, key = rotate(ctx, m.rotary, query, key)
    key, value = ctx.remember(key, "key", window=m.window), ctx.remember(value, "value", window=m.window)
    if ctx.settings.attention == "flash_attention_2":
        return merge(ctx, m, F.scaled_dot_product_attention(query, key, value))
    return merge(ctx, m, eager(ctx, m, query, key, value))


def eager(ctx: Context, m: SinkAttention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scores with the sink as one more key, less their maximum; what the sink gets is cut off after the softmax (eager_attention_forward)."""
    heads = query.shape[1]
    key, value = repeat_kv(key, heads), repeat_kv(value, heads)
    keys, one = Axis("keys", key.shape[2].size), Axis("1", 1)
    more = Axis("keys + sink", keys.size + 1)
    rows = (ctx.batch, heads, query.shape[2])
    scores = F.scale(F.matmul(query, key, (*rows, keys), "scores"), "scaled scores")
    mask = ctx.shared.get(mask_name(m.window))
    if mask is not None:
        scores = F.add(scores, mask, "masked scores")
    sinks = expand(ctx.parameter(next(m.own_weights())), (*rows, one))
    combined = F.cat((scores, sinks), more, "scores and sink")
    highest = topk(combined, one, "highest score")[0]
    combined = sub(combined, highest, "scores less the highest")
    del highest
    probabilities = F.softmax(combined, name="probabilities")
    del scores
    kept = F.slice_last(probabilities, keys)
    if ctx.probabilities is not None:
        ctx.probabilities.append(kept)
    out = F.clone(F.matmul(kept, value, (*rows, value.shape[-1]), "attention output"), "attention output in order")
    del combined
    return out
