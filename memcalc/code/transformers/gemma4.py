"""Gemma 4's text model: norms by power, queries, keys and values each normalised, experts beside the network."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import attend, merge
from memcalc.code.transformers.moe import run_experts
from memcalc.code.transformers.project import head_shapes
from memcalc.code.transformers.rotary import shared_angles, turn
from memcalc.components.gemma4 import Gemma4Attention, Gemma4Layer, Gemma4Norm, Gemma4Router
from memcalc.components.moe import Experts
from memcalc.specs.model import Axis, Component
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.tensor import Tensor


@runs(Gemma4Norm)
def power_norm(ctx: Context, m: Gemma4Norm, x: Tensor) -> Tensor:
    """In fp32; saves the copy of x, its mean square and the power of that, and both factors of the last product (Gemma4RMSNorm.forward)."""
    wide = F.cast(x, "float32", "input in fp32")
    square = F.add_scalar(F.mean(F.pow2(wide), "mean square"), "mean square + eps")
    normal = F.mul(wide, F.inverse_root(square), "normalised in fp32")
    del wide, square
    for weight in m.own_weights():
        normal = F.mul(normal, F.cast(ctx.parameter(weight), "float32", "weight in fp32"), "output in fp32")
    return F.cast(normal, x.dtype, "output")


@runs(Gemma4Attention)
def attention(ctx: Context, m: Gemma4Attention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Gemma4TextAttention.forward)."""
    shapes = head_shapes(ctx, m)
    assert m.rotary is not None
    assert m.k is not None  # layers that take keys from an earlier one are not run
    query = normed(ctx, m.q_norm, F.split_heads(ctx.run(m.q, x), shapes[0]), "q_norm")
    query = turn(m.rotary, query, shared_angles(ctx, m.rotary), "query")
    key = F.split_heads(ctx.run(m.k, x), shapes[1])
    value = key if m.v is None else F.split_heads(ctx.run(m.v, x), shapes[1])
    key = normed(ctx, m.k_norm, key, "k_norm")
    key = turn(m.rotary, key, shared_angles(ctx, m.rotary), "key")
    value = normed(ctx, m.v_norm, value, "v_norm")
    key, value = ctx.remember(key, "key", window=m.window), ctx.remember(value, "value", window=m.window)
    if m.stores:
        ctx.lingering["shared_kv_states"] = (key, value)
    return merge(ctx, m, attend(ctx, m, query, key, value))


def normed(ctx: Context, norm: Component | None, x: Tensor, name: str) -> Tensor:
    """x normalised over each head."""
    return x if norm is None else ctx.run(norm, x, name)


@runs(Gemma4Layer)
def layer(ctx: Context, m: Gemma4Layer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Gemma4TextDecoderLayer.forward)."""
    return F.scale_in_place(branches(ctx, m, x))


def branches(ctx: Context, m: Gemma4Layer, x: Tensor) -> Tensor:
    """Both branches, each between two norms."""
    h = ctx.run(m.norm, x, "input_layernorm")
    held = ctx.probabilities = []
    h = ctx.run(m.self_attn, h, "self_attn")
    ctx.probabilities = None
    residual = x + ctx.run(m.norm, h, "post_attention_layernorm")
    h = ctx.run(m.norm, residual, "pre_feedforward_layernorm")
    h = ctx.run(m.mlp, h, "mlp")
    if m.gate is not None and m.experts is not None:
        h = beside(ctx, m, (m.gate, m.experts), residual, h, held)
    h = residual + ctx.run(m.norm, h, "post_feedforward_layernorm")
    held.clear()
    return h


def beside(ctx: Context, m: Gemma4Layer, parts: tuple[Gemma4Router, Experts], residual: Tensor, h: Tensor, held: list[Tensor]) -> Tensor:  # noqa: PLR0917
    """The network's output and that of experts on the same residual, both normalised, summed; the layer has variables for all of it."""
    first = ctx.run(m.norm, h, "post_feedforward_layernorm_1")
    flat = F.view(residual, (Axis("tokens", ctx.batch.size * ctx.seq.size), residual.shape[-1]))
    held.clear()
    probabilities, weights, indices = route(ctx, parts[0], flat)
    second = ctx.run(m.norm, flat, "pre_feedforward_layernorm_2")
    with ctx.inside("experts"):
        second = ctx.left(run_experts(ctx, parts[1], ctx.entered(second), weights, indices))
    second = ctx.run(m.norm, F.view(second, residual.shape), "post_feedforward_layernorm_2")
    held += [probabilities, weights, indices, first, second]
    return F.add(first, second, "network + experts")


def route(ctx: Context, m: Gemma4Router, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities of all experts, weights and indices of the chosen (Gemma4TextRouter.forward)."""
    scale, per_expert = m.own_weights()
    with ctx.inside("router"):
        x = ctx.run(m.norm, ctx.entered(x), "norm")
        x = F.scale(F.mul(x, ctx.parameter(scale), "scaled by channel"), "scaled input")
        logits = ctx.run(m.proj, x)
        scores = F.softmax(logits, "float32", "router probabilities")
        weights, indices = routing.topk(scores, Axis("top_k", m.top_k))
        weights = routing.div(weights, routing.sum_over(weights, 1, "sum of chosen scores", keep=True), in_place=True)
        each = routing.pick(ctx.parameter(per_expert), indices, weights.shape, "scale of each expert")
        return scores, ctx.left(F.mul(weights, each, "scores")), indices
