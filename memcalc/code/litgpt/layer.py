"""Blocks, with branches one after the other or side by side."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import DecoderLayer, ParallelLayer
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(DecoderLayer)
def block(ctx: Context, m: DecoderLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Block.forward); what attention gives, and what the network reads, have variables to the end."""
    assert m.input_layernorm is not None
    assert m.post_attention_layernorm is not None
    assert m.mlp is not None
    normed = ctx.run(m.input_layernorm, x, "input_layernorm")
    mixed = ctx.run(m.self_attn, normed, "self_attn")
    x = mixed + x
    normed = ctx.run(m.post_attention_layernorm, x, "post_attention_layernorm")
    return ctx.run(m.mlp, normed, "mlp") + x


@runs(ParallelLayer)
def parallel_block(ctx: Context, m: ParallelLayer, x: Tensor) -> Tensor:
    """The same where the network reads the block's own input, by attention's norm or one of its own."""
    normed = ctx.run(m.input_layernorm, x, "input_layernorm")
    mixed = ctx.run(m.self_attn, normed, "self_attn")
    if m.mlp_layernorm is not None:
        normed = ctx.run(m.mlp_layernorm, x, "mlp_layernorm")
    x = F.add(mixed, x, "sum")
    return ctx.run(m.mlp, normed, "mlp") + x
