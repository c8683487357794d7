"""A transformer layer."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import DecoderLayer
from memcalc.tape.tensor import Tensor


@runs(DecoderLayer)
def self_attention_layer(ctx: Context, m: DecoderLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (TransformerSelfAttentionLayer.forward); what each branch gives has a variable to the end.

    Norms after branches are ``sa_scale`` and ``mlp_scale``.
    """
    assert m.input_layernorm is not None
    assert m.post_attention_layernorm is not None
    assert m.mlp is not None
    h = ctx.run(m.input_layernorm, x, "input_layernorm")
    mixed = ctx.run(m.self_attn, h, "self_attn")
    h = ctx.normed(m.post_mixer_norm, mixed, "post_mixer_norm") + x
    fed = ctx.run(m.mlp, ctx.run(m.post_attention_layernorm, h, "post_attention_layernorm"), "mlp")
    return h + ctx.normed(m.post_mlp_norm, fed, "post_mlp_norm")
