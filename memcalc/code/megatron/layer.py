"""A transformer layer: each branch is normalised by the product that reads it, and added with bias and dropout by one kernel.

Source: megatron/core/transformer/transformer_layer.py; fusions/fused_bias_dropout.py.
"""

from __future__ import annotations

from memcalc.code.checkpoint import checkpoint
from memcalc.code.context import Context, runs
from memcalc.code.megatron.checkpoint import WithoutOutput
from memcalc.code.megatron.options import options
from memcalc.components import MLP, Attention, DecoderLayer, GatedMLP
from memcalc.specs.model import Component
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


@runs(DecoderLayer)
def decoder_layer(ctx: Context, m: DecoderLayer, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden) → the same."""
    chosen = options(ctx).hidden_dropout
    p = m.dropout if chosen is None else chosen
    out = branch(ctx, m.input_layernorm, m.self_attn, x, names=("input_layernorm", "self_attn"))
    if m.post_mixer_norm is not None:
        out = ctx.run(m.post_mixer_norm, out, "post_mixer_norm")
    x = bias_dropout_add(ctx, out, x, p)
    del out
    if m.mlp is None:
        return x
    out = branch(ctx, m.post_attention_layernorm, m.mlp, x, names=("post_attention_layernorm", "mlp"))
    if m.post_mlp_norm is not None:
        out = ctx.run(m.post_mlp_norm, out, "post_mlp_norm")
    return bias_dropout_add(ctx, out, x, p)


def branch(ctx: Context, norm: Component | None, body: Component, x: Tensor, *, names: tuple[str, str]) -> Tensor:
    """``body(norm(x))``, run again in backward where the launch says so.

    Dense layers normalise inside the first product, so recomputing ``layernorm`` touches only branches that begin otherwise, and
    recomputing ``mlp`` takes the norm with it.
    """
    recompute = options(ctx).recompute if ctx.settings.training else frozenset()
    dense = isinstance(body, (GatedMLP, MLP))
    if dense and "mlp" in recompute:
        return checkpoint(ctx, lambda x: _run(ctx, norm, body, x, names), x)
    if norm is not None and "layernorm" in recompute and not dense and not is_fused(body):
        kept = WithoutOutput(ctx)
        (h,) = kept.run(lambda x: ctx.run(norm, x, names[0]), x)
        out = ctx.run(body, h, names[1])
        del h
        return kept.drop(out)
    return _run(ctx, norm, body, x, names)


def _run(ctx: Context, norm: Component | None, body: Component, x: Tensor, names: tuple[str, str]) -> Tensor:
    h = x if norm is None else ctx.run(norm, x, names[0])
    ctx.passing = h if norm is not None and (is_fused(body) or isinstance(body, (GatedMLP, MLP))) else None
    return ctx.run(body, h, names[1])


def is_fused(body: Component) -> bool:
    """Whether the norm before it is a part of its first product (TELayerNormColumnParallelLinear)."""
    return isinstance(body, Attention)


def bias_dropout_add(ctx: Context, x: Tensor, residual: Tensor, p: float) -> Tensor:
    """``residual + dropout(x + bias)`` as one kernel: with dropout it keeps a mask of one byte an element, without it nothing."""
    out = like(residual, "residual stream")
    drops = p > 0 and ctx.settings.training
    saves = (like(x, "dropout mask", "bool"),) if drops else ()

    def backward(wants: tuple[bool, ...], g: Tensor, *mask: Tensor) -> tuple[Tensor | None, ...]:
        return (like(g, "gradient of dropout") if drops else g), g

    ctx.tape.record(out, (x, residual), saves, backward)
    return out
