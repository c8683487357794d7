"""Gemma 4's text model: norms by power, queries, keys and values each normalised, experts beside the network."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers import liger
from memcalc.code.transformers.attention import attend, merge
from memcalc.code.transformers.layer_inputs import gated_input, own_input
from memcalc.code.transformers.mask import mask_name
from memcalc.code.transformers.moe import run_experts
from memcalc.code.transformers.project import head_shapes
from memcalc.code.transformers.rotary import shared_angles, turn
from memcalc.components.gemma4 import Gemma4Attention, Gemma4Layer, Gemma4Norm, Gemma4Router
from memcalc.components.moe import Experts
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.span import minimum
from memcalc.tape.tensor import Tensor


@runs(Gemma4Norm)
def power_norm(ctx: Context, m: Gemma4Norm, x: Tensor) -> Tensor:
    """In fp32; saves the copy of x, its mean square and the power of that, and both factors of the last product (Gemma4RMSNorm.forward)."""
    weights = [ctx.parameter(weight) for weight in m.own_weights()]
    if weights and liger.has_norm(ctx):
        return liger.rms_norm(ctx, x, weights[0])
    wide = F.cast(x, "float32", "input in fp32")
    square = F.add_scalar(F.mean(F.pow2(wide), "mean square"), "mean square + eps")
    normal = F.mul(wide, F.inverse_root(square), "normalised in fp32")
    del wide, square
    for weight in weights:
        normal = F.mul(normal, F.cast(weight, "float32", "weight in fp32"), "output in fp32")
    return F.cast(normal, x.dtype, "output")


@runs(Gemma4Attention)
def attention(ctx: Context, m: Gemma4Attention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Gemma4TextAttention.forward)."""
    shapes = head_shapes(ctx, m)
    assert m.rotary is not None
    query = ctx.normed(m.q_norm, F.split_heads(ctx.run(m.q, x), shapes[0]), "q_norm")
    query = turn(m.rotary, query, shared_angles(ctx, m.rotary), "query")
    key, value = earlier_keys(ctx, m) if m.reuses else own_keys(ctx, m, x)
    return merge(ctx, m, attend(ctx, m, query, key, value))


def own_keys(ctx: Context, m: Gemma4Attention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of this layer, which it may leave for others."""
    shape = head_shapes(ctx, m)[1]
    assert m.rotary is not None
    assert m.k is not None
    key = F.split_heads(ctx.run(m.k, x), shape)
    value = key if m.v is None else F.split_heads(ctx.run(m.v, x), shape)
    key = ctx.normed(m.k_norm, key, "k_norm")
    key = turn(m.rotary, key, shared_angles(ctx, m.rotary), "key")
    value = ctx.normed(m.v_norm, value, "v_norm")
    key, value = ctx.remember(key, "key", window=m.window), ctx.remember(value, "value", window=m.window)
    if m.stores:
        leave_keys(ctx, m, key, value)
    return key, value


def leave_keys(ctx: Context, m: Gemma4Attention, key: Tensor, value: Tensor) -> None:
    """The model's forward has variables for keys and values, and checkpoints for those; what is in a cache is alive without them."""
    ctx.lingering["shared_kv_states"] = (key, value)
    if not m.feeds or not ctx.settings.training:
        return
    for name, tensor in zip(names_of(m), (key, value), strict=True):
        ctx.shared[name] = tensor
        if ctx.settings.records and (tensor.requires_grad or not ctx.tape.grad_enabled):
            ctx.differentiable.add(name)


def earlier_keys(ctx: Context, m: Gemma4Attention) -> tuple[Tensor, Tensor]:
    """Keys and values of the last layer of this kind that has its own; in inference those in the cache."""
    if ctx.settings.training:
        key, value = (ctx.shared[name] for name in names_of(m))
        return key, value
    batch, heads, _, dim = head_shapes(ctx, m)[1]
    shape = (batch, heads, Axis("keys", ctx.settings.seq), dim)
    return Tensor(ctx.tape, shape, ctx.settings.dtype, None), Tensor(ctx.tape, shape, ctx.settings.dtype, None)


def names_of(m: Gemma4Attention) -> tuple[str, str]:
    """What keys and values of this kind of layer are called among what layers share."""
    kind = "all tokens" if m.window is None else "a window"
    return f"keys of {kind}", f"values of {kind}"


@runs(Gemma4Layer)
def layer(ctx: Context, m: Gemma4Layer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Gemma4TextDecoderLayer.forward), or the last tokens of it."""
    seq = ctx.seq
    if m.self_attn.reuses:
        x = last_tokens(ctx, m.self_attn, x)
    own = None if m.inputs is None else own_input(ctx, ctx.seq)
    h = branches(ctx, m, x)
    if m.inputs is not None and own is not None:
        h = h + gated_input(ctx, m.inputs, h, own)
    ctx.seq = seq
    return F.scale_in_place(h)


def last_tokens(ctx: Context, m: Gemma4Attention, x: Tensor) -> Tensor:
    """The tokens that get logits: nothing asks for the others where no layer behind has keys of its own (_maybe_slice_kv_shared_inputs).

    The fused kernels can go on with one token; with more of them where they have a mask.
    """
    settings = ctx.settings
    asked = settings.logits_to_keep
    if asked is None:
        asked = 0 if settings.training else 1
    if not asked or settings.attention == "flash_attention_2" or (settings.attention == "sdpa" and asked > 1 and not settings.padded):
        return x
    ctx.seq = Axis("logits_to_keep", minimum(asked, settings.seq))
    mask = ctx.shared.get(mask_name(m.window))
    if mask is not None:
        ctx.shared[mask_name(m.window)] = Tensor(ctx.tape, (*mask.shape[:-2], ctx.seq, mask.shape[-1]), mask.dtype, mask.storage)
    return F.narrow(x, (ctx.batch, ctx.seq, x.shape[-1])) if m.first else x


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
