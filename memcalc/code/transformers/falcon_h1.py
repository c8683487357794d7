"""Falcon-H1's layers, whose branches are multiplied by constants all the way."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers import liger
from memcalc.components.falcon_h1 import ScaledMLP, TwoMixerLayer
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(ScaledMLP)
def scaled_mlp(ctx: Context, m: ScaledMLP, x: Tensor) -> Tensor:
    """``down(up(x) * act(gate(x) * constant)) * constant`` (FalconH1MLP.forward); Liger's kernel has the first inside, and the last before ``down``."""
    assert m.up is not None
    if ctx.settings.liger.mlp:
        return ctx.run(m.down, F.scale(liger.gate_mul(ctx.run(m.gate, x), ctx.run(m.up, x)), "scaled gate * up"))
    up = ctx.run(m.up, x)
    h = F.mul(up, apply_activation(F.scale(ctx.run(m.gate, x), "scaled gate"), m.activation), "up * gate")
    del up
    return F.scale(ctx.run(m.down, h), "scaled output")


@runs(TwoMixerLayer)
def two_mixers(ctx: Context, m: TwoMixerLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; variables hold both mixers' outputs to the end (FalconH1DecoderLayer.forward)."""
    h = ctx.run(m.input_layernorm, x, "input_layernorm")
    mixed = F.scale(ctx.run(m.mamba, h, "mamba"), "scaled mamba output")
    held = ctx.probabilities = []
    attended = F.scale(ctx.run(m.self_attn, F.scale(h, "scaled input"), "self_attn"), "scaled attention output")
    ctx.probabilities = None
    held += [mixed, attended]
    h = F.add(mixed, attended, "sum of mixers")
    h = x + h
    residual = h
    h = ctx.run(m.pre_ff_layernorm, h, "pre_ff_layernorm")
    h = residual + ctx.run(m.feed_forward, h, "feed_forward")
    held.clear()
    del mixed, attended
    return h
