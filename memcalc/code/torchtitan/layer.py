"""A transformer block, and the checkpoint around it."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.selection import checkpointed
from memcalc.components import Attention, DecoderLayer
from memcalc.components.moe import MoE
from memcalc.specs.model import Axis
from memcalc.tape.tensor import Tensor


@runs(DecoderLayer)
def transformer_block(ctx: Context, m: DecoderLayer, x: Tensor) -> Tensor:
    """x (batch, seq / tp, hidden) → the same (TransformerBlock.forward)."""
    if ctx.settings.options != "none" and ctx.settings.records:
        return checkpointed(ctx, lambda x: block(ctx, m, x), x, cast_angles(ctx, m), widens=isinstance(m.mlp, MoE))
    return block(ctx, m, x)


def cast_angles(ctx: Context, m: DecoderLayer) -> tuple[Tensor, ...]:
    """Each layer's copy of Qwen3's angles in the policy's dtype, which ``fully_shard`` makes of a layer's inputs; complex angles stay as they are."""
    if not ctx.settings.casts_weights or not isinstance(m.self_attn, Attention) or m.self_attn.q_norm is None:
        return ()
    both = Axis("2 * head_dim", 2 * m.self_attn.head_dim)
    return (ctx.tape.new((ctx.seq, both), ctx.settings.dtype, "angles in the policy's dtype"),)


def block(ctx: Context, m: DecoderLayer, x: Tensor) -> Tensor:
    """``h = x + attention(norm(x))``, ``h + feed_forward(norm(h))``. What a norm gives stays while its branch runs, since the caller passed it."""
    h = ctx.run(m.input_layernorm, x, "input_layernorm") if m.input_layernorm else x
    x = x + ctx.run(m.self_attn, h, "self_attn")
    del h
    if m.mlp is None:
        return x
    h = ctx.run(m.post_attention_layernorm, x, "post_attention_layernorm") if m.post_attention_layernorm else x
    return x + ctx.run(m.mlp, h, "mlp")
