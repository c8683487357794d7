"""Layers of which an architecture search has left a part."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.nas import SearchedLayer
from memcalc.tape.tensor import Tensor


@runs(SearchedLayer)
def searched_layer(ctx: Context, m: SearchedLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (DeciLMDecoderLayer.forward, whose attention is ``no_op``)."""
    if m.mlp is None or m.post_attention_layernorm is None:
        return x
    return x + ctx.run(m.mlp, ctx.run(m.post_attention_layernorm, x, "post_attention_layernorm"), "mlp")
