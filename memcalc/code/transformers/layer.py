"""Layers: the residual stream and its branches."""

from __future__ import annotations

from functools import partial

from memcalc.code.checkpoint import forget
from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.components import MLP, Attention, DecoderLayer, ParallelLayer, PostNormLayer
from memcalc.specs.model import Axis, Component
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(DecoderLayer)
def decoder_layer(ctx: Context, m: DecoderLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (LlamaDecoderLayer.forward; Gemma2DecoderLayer.forward with norms after the branches).

    The probabilities of eager attention are held to the end: ``hidden_states, _ = self.self_attn(…)``.
    """
    before = earlier_probabilities(ctx, m.self_attn) if m.returns_probabilities else []
    h = part(ctx, m.input_layernorm, x, "input_layernorm") if m.input_layernorm else x
    residual = h if m.residual_from_norm else x
    held = ctx.probabilities = [h] if m.holds == "normed and mixed" else []
    h = part(ctx, m.self_attn, h, "self_attn")
    ctx.probabilities = None
    if m.holds != "nothing":
        held.append(h)
    if m.post_mixer_norm:
        h = part(ctx, m.post_mixer_norm, h, "post_mixer_norm")
    h = add_branch(ctx, m, residual, h)
    if m.mlp is None:
        return h
    residual = h
    if m.post_attention_layernorm:
        run = ctx.run if m.post_mixer_norm else partial(part, ctx)  # that before the network has another name then
        h = run(m.post_attention_layernorm, h, "post_attention_layernorm")
        residual = h if m.residual_from_norm else residual
    if m.inlined and isinstance(m.mlp, MLP):
        with ctx.inside("mlp"):
            h = ctx.run(m.mlp.up, h)
            h = apply_activation(h, m.mlp.activation)
            h = ctx.run(m.mlp.down, h)
    else:
        h = part(ctx, m.mlp, h, "mlp")
    if m.post_mlp_norm:
        h = ctx.run(m.post_mlp_norm, h, "post_mlp_norm")
    h = add_branch(ctx, m, residual, h)
    held.clear()
    before.clear()
    return h


def part(ctx: Context, m: Component, x: Tensor, name: str) -> Tensor:
    """A child on x, under a checkpoint of its own where each has one.

    Source: NeMo Automodel, components/distributed/activation_checkpointing.py, ``apply_submodule_checkpointing``; NeMo-RL,
    models/dtensor/parallelize.py, ``_parallelize_model``.
    """
    return forget(ctx, lambda x: ctx.run(m, x, name), x) if ctx.settings.submodules else ctx.run(m, x, name)


def earlier_probabilities(ctx: Context, mixer: Component) -> list[Tensor]:
    """Those of the layer before, which the model still holds; where a graph is kept they are saved in it anyway."""
    if ctx.settings.attention != "eager" or ctx.tape.grad_enabled or not isinstance(mixer, Attention):
        return []
    shape = (ctx.batch, Axis("heads", mixer.num_heads // ctx.settings.tp), ctx.seq, Axis("keys", ctx.seq.size))
    return [ctx.tape.new(shape, ctx.settings.dtype, "probabilities of the layer before")]


def add_branch(ctx: Context, m: DecoderLayer, residual: Tensor, branch: Tensor) -> Tensor:
    """``residual + branch``, after dropout, times a constant where there is one (GraniteDecoderLayer.forward)."""
    branch = dropout(ctx, branch, m.dropout)
    return residual + (F.scale(branch, "branch scaled") if m.scaled else branch)


@runs(ParallelLayer)
def parallel_layer(ctx: Context, m: ParallelLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (GPTJBlock.forward, CohereDecoderLayer.forward, GPTNeoXLayer.forward)."""
    before = earlier_probabilities(ctx, m.self_attn) if m.returns_probabilities else []
    h = ctx.run(m.input_layernorm, x, "input_layernorm")
    held = ctx.probabilities = []
    mixed = dropout(ctx, ctx.run(m.self_attn, h, "self_attn"), m.dropout)
    ctx.probabilities = None
    if m.mlp_layernorm is not None:
        del h
        h = ctx.run(m.mlp_layernorm, x, "mlp_layernorm")
    out = dropout(ctx, ctx.run(m.mlp, h, "mlp"), m.dropout)
    out = F.add(out, mixed, "sum of branches") + x
    held.clear()
    before.clear()
    return out


@runs(PostNormLayer)
def post_norm_layer(ctx: Context, m: PostNormLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (BertLayer.forward)."""
    held = ctx.probabilities = []
    h = dropout(ctx, ctx.run(m.self_attn, x, "self_attn"), m.dropout)
    ctx.probabilities = None
    h = ctx.run(m.attention_norm, h + x, "attention_norm")
    if m.holds_inner and isinstance(m.mlp, MLP):
        with ctx.inside("mlp"):
            held.append(apply_activation(ctx.run(m.mlp.up, h), m.mlp.activation))
            y = dropout(ctx, ctx.run(m.mlp.down, held[-1]), m.dropout)
    else:
        y = dropout(ctx, ctx.run(m.mlp, h, "mlp"), m.dropout)
    y = ctx.run(m.output_norm, y + h, "output_norm")
    held.clear()
    return y
