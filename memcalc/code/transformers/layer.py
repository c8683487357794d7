"""A decoder layer: the residual stream and its two branches."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import DecoderLayer
from memcalc.tape.tensor import Tensor


@runs(DecoderLayer)
def decoder_layer(ctx: Context, m: DecoderLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (LlamaDecoderLayer.forward)."""
    residual = x
    h = ctx.run(m.input_layernorm, x, "input_layernorm") if m.input_layernorm else x
    h = ctx.run(m.self_attn, h, "self_attn")
    if m.post_mixer_norm:
        h = ctx.run(m.post_mixer_norm, h, "post_mixer_norm")
    h = residual + h
    if m.mlp is None:
        return h
    residual = h
    if m.post_attention_layernorm:
        h = ctx.run(m.post_attention_layernorm, h, "post_attention_layernorm")
    h = ctx.run(m.mlp, h, "mlp")
    if m.post_mlp_norm:
        h = ctx.run(m.post_mlp_norm, h, "post_mlp_norm")
    return residual + h
