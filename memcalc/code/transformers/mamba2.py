"""Mamba-2's mixer as PyTorch's own operators run it, which is how transformers does where the package mamba-ssm is absent.

The fused kernel recomputes what is inside a chunk in backward; it is not counted here.
"""

from __future__ import annotations

import functools

from memcalc.code.context import Context, runs
from memcalc.code.transformers.gated_norm import gated_norm
from memcalc.code.transformers.loop import is_cut
from memcalc.components.mamba2 import Mamba2
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.functional.pointwise import activation
from memcalc.tape.functional.routing import clamp
from memcalc.tape.tensor import Shape, Tensor


@runs(Mamba2)
def mamba2(ctx: Context, m: Mamba2, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Mamba2Mixer.forward, NemotronHMamba2Mixer.forward, BambaMixer.forward, FalconH1Mixer.forward)."""
    dtype, inner, mixed = x.dtype, m.out_proj.inputs, m.conv1d.channels
    grouped = Axis("n_groups * state_size", m.num_groups * m.state.size)
    dt_bias, a_log, d = (ctx.parameter(w) for w in m.own_weights())
    projected = scaled_projection(ctx, m, x) if m.scaled else ctx.run(m.in_proj, x)
    a = F.neg(F.keeps_result(F.cast(a_log, "float32", "A_log in fp32"), "exp"), "A")
    gate, h, dt = F.split_last(projected, (inner, mixed, m.num_heads))
    h = F.view(ctx.run(m.conv1d, F.view(h, (ctx.batch, mixed, ctx.seq))), (ctx.batch, ctx.seq, mixed))
    values, b, c = F.split_last(h, (inner, grouped, grouped))
    values = F.view(values, (ctx.batch, ctx.seq, m.num_heads, m.head_dim))
    by_group = (ctx.batch, ctx.seq, Axis("n_groups", m.num_groups), m.state)
    out, *state = chunk_scan(ctx, m, values, (dt, dt_bias), a=a, b=F.view(b, by_group), c=F.view(c, by_group), d=d)
    for last in state:
        ctx.remember(last, "recurrent_state")
    out = F.view(out, (ctx.batch, ctx.seq, inner))
    out = F.mul(out, activation(gate, "silu"), "gated") if m.norm is None else gated_norm(ctx, m.norm, out, gate)
    return ctx.run(m.out_proj, F.cast(out, dtype, "mixed"))


def scaled_projection(ctx: Context, m: Mamba2, x: Tensor) -> Tensor:
    """What is projected of a scaled input, times a vector that is a buffer in the dtype of the weights."""
    scales = Tensor(ctx.tape, (m.in_proj.outputs,), ctx.settings.dtype, None)
    return F.mul(ctx.run(m.in_proj, F.scale(x, "scaled input")), scales, "scaled projection")


def chunk_scan(ctx: Context, m: Mamba2, values: Tensor, steps: tuple[Tensor, Tensor], *, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> list[Tensor]:
    """All heads' outputs (batch, seq, heads, head_dim) in fp32, and in inference the last state (mamba2_chunk_scan).

    Args:
        ctx, m: as for any program.
        values: (batch, seq, heads, head_dim).
        steps: of time, (batch, seq, heads), and their bias (heads,).
        a, d: (heads,).
        b, c: (batch, seq, groups, state).
    """
    heads, chunks = m.num_heads, -(-ctx.seq.size // m.chunk)
    padded = (ctx.batch, Axis("padded seq_len", chunks * m.chunk), heads)
    dt = activation(F.add(steps[0], steps[1], "time steps + bias"), "softplus")
    dt = clamp(dt, "time steps within limits")
    values = F.cast(values, "float32", "channels in fp32")
    per_head = (ctx.batch, ctx.seq, heads, m.state)
    b = F.repeat(F.cast(b, "float32", "B in fp32"), per_head, "B of each head")
    c = F.repeat(F.cast(c, "float32", "C in fp32"), per_head, "C of each head")
    skip = F.mul(scan.pad(values, (*padded, m.head_dim)), F.view(d, (heads, Axis("1", 1))), "D * channels")
    values = F.mul(values, F.cast(F.view(dt, (*dt.shape, Axis("1", 1))), "float32", "time steps in fp32"), "channels * time steps")
    a = F.mul(F.cast(dt, "float32", "time steps in fp32"), a, "A * time steps")
    parts = [scan.pad(values, (*padded, m.head_dim)), scan.pad(a, padded), scan.pad(b, (*padded, m.state)), scan.pad(c, (*padded, m.state))]
    values, a, b, c = parts
    del parts
    blocks = (ctx.batch, Axis("chunks", chunks), Axis("chunk_size", m.chunk), heads)
    values, a, b, c = (F.view(t, (*blocks, *t.shape[3:])) for t in (values, a, b, c))
    out, *held = mix(ctx, m, blocks, values, a=a, b=b, c=c)
    out = F.add(F.view(out, (*padded, m.head_dim)), skip, "outputs + D * channels")
    if is_cut(ctx, m.chunk):
        out = F.narrow(out, (ctx.batch, ctx.seq, heads, m.head_dim))
    last = Tensor(ctx.tape, (ctx.batch, heads, m.head_dim, m.state), "float32", held[0].storage)
    return [out] if ctx.settings.training else [out, last]


def mix(ctx: Context, m: Mamba2, blocks: Shape, values: Tensor, *, a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
    """Outputs within and across chunks, summed, and after them all that the function's variables hold, the states first."""
    batch, chunks, size, heads = blocks
    outputs, several = (*blocks, m.head_dim), ctx.reaches(m.chunk + 1)
    is_single = not several and isinstance(batch.size, int) and batch.size == 1  # heads alone tell the products apart, so that no operand is copied
    copies = functools.partial(copied, several=several, is_single=is_single)
    a = F.view(a, (batch, heads, chunks, size))
    sums = scan.cumsum(a, "running sum of A")
    within = F.keeps_result(segment_sum(a, size), "exp")
    scores = scan.contract(c, b, (batch, chunks, size, Axis("chunk_size", m.chunk), heads), "C * B", copies=copies("xy", "xy"))
    masked = F.mul(scores, F.view(within, scores.shape), "C * B * decay")
    inner = scan.contract(masked, values, outputs, "outputs within chunks", copies=copies("yg", ""))

    last = F.narrow(sums, (batch, heads, chunks, Axis("1", 1)))
    decay = F.view(F.keeps_result(scan.minus(last, sums, sums.shape, "sum to the end of the chunk"), "exp"), (*blocks, Axis("1", 1)))
    weighted = F.mul(b, decay, "B * decay")
    state = (batch, chunks, heads, m.head_dim, m.state)
    states = scan.contract(values, weighted, state, "states of chunks", copies=copies("xyg", "y"))
    first, more = ctx.tape.new((batch, Axis("1", 1), *state[2:]), "float32", "zeros"), Axis("chunks + 1", chunks.size + 1)
    states = scan.cat_rows((first, states), (batch, more, *state[2:]), "states of chunks and the first")
    ends = scan.pad(F.narrow(sums, (batch, heads, chunks)), (batch, heads, more), "sums of chunks")
    across = F.keeps_result(segment_sum(ends, more), "exp")
    del ends, last
    states = scan.contract(across, states, (batch, more, *state[2:]), "states at the ends of chunks", copies=copies("yg", "yg"))
    begins = F.narrow(states, state)

    growth = F.view(F.keeps_result(sums, "exp"), (*blocks, Axis("1", 1)))
    read = scan.contract(c, begins, outputs, "C * states", copies=copies("xyg", "x"))
    outer = F.mul(read, growth, "outputs across chunks")
    out = F.clone(F.add(inner, outer, "outputs"), "outputs in order")
    return [out, states, begins, values, a, b, c, sums, within, scores, masked, inner, decay, weighted, first, across, growth, read, outer]


def copied(of_several: str, of_one: str, *, several: bool, is_single: bool) -> str:
    """Which operands of a product are copied: those of several chunks, those of one, or none where there is one sequence as well."""
    return of_several if several else "" if is_single else of_one


def segment_sum(x: Tensor, length: Axis) -> Tensor:
    """Sums over every stretch of a row, (…, length, length), above the diagonal minus infinity (segment_sum)."""
    square = (length, Axis("segments", length.size))
    wide = F.expand(x, (*x.shape, square[1]))
    wide = F.masked_fill(wide, triangle(x, square), "values below the diagonal")
    return F.masked_fill(scan.cumsum(wide), triangle(x, square), "segment sums")


def triangle(x: Tensor, square: Shape) -> Tensor:
    """Bools above the diagonal."""
    ones = x.tape.new(square, "bool", "ones")
    lower = x.tape.new(square, "bool", "lower triangle")
    del ones
    upper = x.tape.new(square, "bool", "upper triangle")
    del lower
    return upper
