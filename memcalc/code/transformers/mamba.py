"""Mamba's mixer as PyTorch's own operators run it, which is how transformers does where the package mamba-ssm is absent.

The fused kernel keeps neither the discretised A and B nor the states, and recomputes them in backward; it is not counted here.
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import stack_sequences
from memcalc.code.transformers.loop import steps
from memcalc.components.lora import LoraLinear
from memcalc.components.mamba import Mamba
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.functional.pointwise import activation
from memcalc.tape.tensor import Tensor


@runs(Mamba)
def mamba(ctx: Context, m: Mamba, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MambaMixer.forward, JambaMambaMixer.forward, FalconMambaMixer.forward)."""
    dtype, channels = x.dtype, (ctx.batch, m.intermediate, ctx.seq)
    both = ctx.run(m.in_proj, x)
    both = F.split_heads(both, (ctx.batch, both.shape[-1], ctx.seq))
    a_log, d = (ctx.parameter(w) for w in m.own_weights())
    a = F.neg(F.keeps_result(F.cast(a_log, "float32", "A_log in fp32"), "exp"), "A")
    h, gate = scan.split_into(both, (channels, channels))
    h = ctx.run(m.conv1d, h)
    latent = ctx.run(m.x_proj, stack_sequences(ctx, F.view(h, (ctx.batch, ctx.seq, m.intermediate)), "channels in order", is_stacked=False))
    dt, b, c = F.split_last(latent, (m.rank, m.state, m.state))
    if m.dt_layernorm is not None:
        dt = ctx.run(m.dt_layernorm, dt, "dt_layernorm")
    if m.b_layernorm is not None:
        b = ctx.run(m.b_layernorm, b, "b_layernorm")
    if m.c_layernorm is not None:
        c = ctx.run(m.c_layernorm, c, "c_layernorm")
    dt, bias = time_steps(ctx, m, dt)
    d = F.cast(d, "float32", "D in fp32")
    scanned, *state = selective_scan(ctx, m, (h, dt, a, b, c, d, gate), bias)
    for last in state:
        ctx.remember(last, "recurrent_state")
    out = F.cast(F.view(scanned, (ctx.batch, ctx.seq, m.intermediate)), dtype, "scanned")
    return ctx.run(m.out_proj, stack_sequences(ctx, out, "scanned in order", is_stacked=False))


def time_steps(ctx: Context, m: Mamba, latent: Tensor) -> tuple[Tensor, Tensor]:
    """``weight @ latentᵀ``, (batch, channels, seq), and the bias in fp32; an adapter around the projection is not asked."""
    base = m.dt_proj.base_layer if isinstance(m.dt_proj, LoraLinear) else m.dt_proj
    with ctx.inside(m.dt_proj.module_name):
        weight, bias = base.own_weights()
        dt = F.linear(latent, F.cast_weight(ctx.parameter(weight), ctx.weight_path(weight)), None, m.intermediate, "time steps")
        return scan.reordered(dt, (ctx.batch, m.intermediate, ctx.seq), "time steps in order"), F.cast(ctx.parameter(bias), "float32", "bias in fp32")


def selective_scan(ctx: Context, m: Mamba, inputs: tuple[Tensor, ...], bias: Tensor) -> list[Tensor]:
    """The whole sequence, (batch, channels, seq), and in inference the last state (mamba_selective_scan).

    A state for each token is made in full, and all of them are saved.
    """
    h, dt, a, b, c, d, gate = inputs
    every = (ctx.batch, m.intermediate, ctx.seq, m.state)
    dt = F.add(dt, F.cast(bias, dt.dtype, "bias"), "time steps + bias")
    dt = activation(dt, "softplus")
    decay = F.keeps_result(scan.outer(a, dt, every, "A * time steps"), "exp")
    influx = scan.outer(dt, F.cast(b, "float32", "B in fp32"), every, "B * time steps")
    update = scan.outer(influx, F.cast(h, "float32", "channels in fp32"), every, "B * time steps * channels")
    out, state, *read = recur(ctx, m, decay, update, c, dtype=h.dtype)
    out = F.add(out, F.mul(h, d, "D * channels"), "scanned + D * channels")
    out = F.mul(out, activation(gate, "silu"), "gated")
    del read
    return [out] if ctx.settings.training else [out, state]


def recur(ctx: Context, m: Mamba, decay: Tensor, update: Tensor, c: Tensor, *, dtype: str) -> list[Tensor]:
    """Token by token: ``state = decay * state + update``, and what C reads from it.

    Returns what was read of all tokens, the last state, and what else the caller's variables hold: the list of what was read.
    """
    one, column = (ctx.batch, m.intermediate, m.state), (ctx.batch, m.intermediate, Axis("1", 1))
    saved = [(one, "float32", "state"), *([] if dtype == "float32" else [(one, dtype, "state in the model's dtype")])]
    state = ctx.tape.new(one, dtype, "zeros")
    read: list[Tensor] = []
    others: list[Tensor] = []
    for more in steps(ctx):
        state = F.add(F.mul(F.narrow(decay, one), state, "decayed state"), F.narrow(update, one), "state")
        narrow = F.cast(state, dtype, "state in the model's dtype")
        read.append(F.narrow(F.matmul(narrow, F.narrow(c, (ctx.batch, m.state, Axis("1", 1))), column, "output of a token"), column[:2]))
        del narrow
        if more is not None:
            others.append(ctx.tape.new((Axis("further steps", more), *column), dtype, "output of a token"))
            state = scan.as_if_repeated(state, more, saved)
    return [scan.stack(read, (ctx.batch, m.intermediate, ctx.seq), "outputs of all tokens"), state, *read, *others]
