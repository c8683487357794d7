"""Gated delta networks as PyTorch's own operators run them, which is how transformers does where the package flash-linear-attention is absent.

The fused kernel recomputes what is inside a chunk in backward; it is not counted here.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

from memcalc.code.context import Context, runs
from memcalc.code.transformers.gated_norm import gated_norm
from memcalc.code.transformers.loop import is_cut, steps
from memcalc.components.delta_net import GatedDeltaNet
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.functional.pointwise import activation
from memcalc.tape.functional.routing import sum_over
from memcalc.tape.tensor import Shape, Tensor

ONE = Axis("1", 1)


@runs(GatedDeltaNet)
def gated_delta_net(ctx: Context, m: GatedDeltaNet, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Qwen3_5GatedDeltaNet.forward, Qwen3NextGatedDeltaNet.forward)."""
    dt_bias, a_log = (ctx.parameter(w) for w in m.own_weights())
    held, parts, (mixed, z, b, a) = project(ctx, m, x)
    flat = F.view(ctx.run(m.conv1d, mixed), (ctx.batch, ctx.seq, m.conv1d.channels))
    del mixed
    query, key, value = heads_of(ctx, m, flat)
    del parts
    beta = F.keeps_result(b, "sigmoid")
    rate = F.neg(F.keeps_result(F.cast(a_log, "float32", "A_log in fp32"), "exp"), "A")
    decay = scan.outer(rate, activation(F.add(F.cast(a, "float32", "a in fp32"), dt_bias, "a + bias"), "softplus"), a.shape, "decay")
    del rate
    out, *state = chunk_rule(ctx, m, (query, key, value, beta, decay))
    for last in state:
        ctx.remember(last, "recurrent_state")
    rows = (Axis("tokens * heads", ctx.batch.size * ctx.seq.size * m.num_v_heads.size), m.v_dim)
    out = gated_norm(ctx, m.norm, F.view(out, rows), F.view(z, rows))
    out = ctx.run(m.out_proj, F.view(out, (ctx.batch, ctx.seq, m.values)))
    del held
    return out


Projected = tuple[list[Tensor], list[Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]
"""What variables hold to the end and until the convolution is through; queries, keys and values (batch, channels, seq), the gate, and for each
value head how much it learns and forgets (batch, seq, heads)."""


def project(ctx: Context, m: GatedDeltaNet, x: Tensor) -> Projected:
    """All that is read from the input."""
    mixed = ctx.run(m.qkv, x)
    if m.z is not None and m.a is not None:
        z = ctx.run(m.z, x)
        b = ctx.run(m.b, x)
        return [], [], (F.split_heads(mixed, (ctx.batch, mixed.shape[-1], ctx.seq)), z, b, ctx.run(m.a, x))
    return taken_apart(ctx, m, mixed, ctx.run(m.b, x))


def taken_apart(ctx: Context, m: GatedDeltaNet, mixed: Tensor, both: Tensor) -> Projected:
    """The parts of two fused projections, each copied into order (fix_query_key_value_ordering)."""
    keys, values = Axis("keys", m.num_k_heads.size * m.k_dim.size), m.values
    parts = F.split_last(mixed, (keys, keys, values, values))
    halves = F.split_last(both, (m.num_v_heads, m.num_v_heads))
    value, z = F.clone(parts[2], "value in order"), F.clone(parts[3], "gate in order")
    b, a = F.clone(halves[0], "b in order"), F.clone(halves[1], "a in order")
    query, key = F.clone(parts[0], "query in order"), F.clone(parts[1], "key in order")
    joined = F.cat((query, key, value), m.conv1d.channels, "queries, keys and values")
    return [mixed, both], [query, key, value], (F.view(joined, (ctx.batch, m.conv1d.channels, ctx.seq)), z, b, a)


def heads_of(ctx: Context, m: GatedDeltaNet, flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head, (batch, seq, heads, head_dim), as views."""
    keys, few, many = (
        Axis("keys", m.num_k_heads.size * m.k_dim.size),
        (ctx.batch, ctx.seq, m.num_k_heads, m.k_dim),
        (ctx.batch, ctx.seq, m.num_v_heads, m.v_dim),
    )
    query, key, value = F.split_last(flat, (keys, keys, m.values))
    value = F.split_heads(value, many)
    if shares(m):
        return F.view(query, few), F.view(key, few), value
    return F.split_heads(query, few), F.split_heads(key, few), value


def shares(m: GatedDeltaNet) -> bool:
    """Whether a query and key head serves several value heads, and so is repeated."""
    return bool(m.num_k_heads.size != m.num_v_heads.size)


class Chunks(NamedTuple):
    """What the loop over chunks reads of each, all (batch, heads, chunks, chunk, …).

    Attributes:
        values, keys_decayed: the solutions of the triangular system.
        query, key: decayed from and to the ends of the chunk.
        scores: within the chunk.
        decay: over the whole chunk.
    """

    values: Tensor
    keys_decayed: Tensor
    query: Tensor
    key: Tensor
    scores: Tensor
    decay: Tensor


def chunk_rule(ctx: Context, m: GatedDeltaNet, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Outputs (batch, seq, value heads, head_dim), and in inference the last state (torch_chunk_gated_delta_rule).

    Args:
        ctx, m: as for any program.
        inputs: query, key, value, beta, decay.
    """
    dtype = inputs[0].dtype
    query, key, value, beta, decay = in_fp32(ctx, m, inputs)
    query = l2norm(query, "query")
    key = l2norm(key, "key")
    query = F.scale(query, "query scaled")
    chunks = -(-ctx.seq.size // m.chunk)
    padded = (ctx.batch, m.num_v_heads, Axis("padded seq_len", chunks * m.chunk))
    query, key, value = (scan.pad(query, (*padded, m.k_dim)), scan.pad(key, (*padded, m.k_dim)), scan.pad(value, (*padded, m.v_dim)))
    beta = scan.pad(beta, padded)
    decay = scan.pad(decay, padded)
    blocks = (ctx.batch, m.num_v_heads, Axis("chunks", chunks), Axis("chunk_size", m.chunk))
    given = [query, key, value, beta, decay]
    del query, key, value, beta, decay
    parts, begin, held = within(m, blocks, given)
    core, *state = across(ctx, m, blocks, parts, begin)
    last = [] if ctx.settings.training else state[:1]
    del state[0]
    if ctx.reaches(m.chunk + 1):
        core = F.clone(core, "outputs in order")
    out = F.view(core, (*padded, m.v_dim))
    if is_cut(ctx, m.chunk):
        out = F.narrow(out, (*padded[:2], ctx.seq, m.v_dim))
    out = F.cast(F.view(out, (ctx.batch, ctx.seq, m.num_v_heads, m.v_dim)), dtype, "outputs")
    del core, held, state, parts
    return [out, *last]


def in_fp32(ctx: Context, m: GatedDeltaNet, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """All inputs in fp32, (batch, value heads, seq, …); what was repeated on the way goes once all are made."""
    query, key, value, beta, decay = inputs
    heads = (ctx.batch, m.num_v_heads, ctx.seq)
    if shares(m):
        shape = (ctx.batch, ctx.seq, m.num_v_heads, m.k_dim)
        query, key = F.repeat(query, shape, "query of each value head"), F.repeat(key, shape, "key of each value head")
    wide = [F.cast(F.view(t, (*heads, *t.shape[3:])), "float32", f"{name} in fp32") for t, name in ((query, "query"), (key, "key"), (value, "value"))]
    return *wide, F.cast(F.view(beta, heads), "float32", "beta in fp32"), F.view(decay, heads)


def l2norm(x: Tensor, name: str) -> Tensor:
    """``x * rsqrt(sum(x * x) + eps)``; saves x, its product's factors and the reciprocal."""
    squares = sum_over(F.mul(x, x, f"{name} squared"), len(x.shape) - 1, "sum of squares", keep=True)
    inverse = F.rsqrt(F.add_scalar(squares, "sum of squares + eps"), "reciprocal norm")
    del squares
    return F.mul(x, inverse, f"{name} normalised")


def within(m: GatedDeltaNet, blocks: Shape, inputs: list[Tensor]) -> tuple[Chunks, list[Tensor], list[Tensor]]:
    """What is inside the chunks, all at once; the first state and what outputs are put into; all else that the real function's variables hold.

    Takes the inputs away.
    """
    query, key, value, beta, decay = inputs
    inputs.clear()
    tape, size, square = query.tape, blocks[-1], (*blocks, Axis("chunk_size", m.chunk))
    column = F.view(beta, (*beta.shape, ONE))
    v_beta = F.split_heads(F.mul(value, column, "value * beta"), (*blocks, m.v_dim))
    k_beta = F.split_heads(F.mul(key, column, "key * beta"), (*blocks, m.k_dim))
    query, key, decay = F.view(query, (*blocks, m.k_dim)), F.view(key, (*blocks, m.k_dim)), F.view(decay, blocks)
    ones = tape.new(square[-2:], "bool", "ones")
    mask = tape.new(square[-2:], "bool", "later tokens")
    del ones
    sums = scan.cumsum(decay)
    pairs = F.masked_fill(scan.minus(F.view(sums, (*blocks, ONE)), F.view(sums, (*blocks[:-1], ONE, size)), square, "decay between tokens"), mask)
    pairs = F.keeps_result(pairs, "exp")
    system = F.mul(F.matmul(k_beta, key, square, "keys * beta * keys"), pairs, "triangular system")
    scores = F.mul(F.matmul(query, key, square, "queries * keys"), pairs, "scores within chunks")
    k_decayed = F.mul(k_beta, F.view(F.keeps_result(sums, "exp"), (*blocks, ONE)), "key * beta * decay")
    values = scan.solve_triangular(system, v_beta, "new values")
    keys = scan.solve_triangular(system, k_decayed, "decayed keys")
    zeros, outputs = tape.new((*blocks[:2], m.k_dim, m.v_dim), "float32", "zeros"), F.like(values, "outputs")
    query = F.mul(query, F.view(F.keeps_result(sums, "exp"), (*blocks, ONE)), "query * decay")
    last = F.narrow(sums, (*blocks[:-1], ONE))
    key = F.mul(key, F.view(F.keeps_result(scan.minus(last, sums, sums.shape, "decay to the end"), "exp"), (*blocks, ONE)), "key * decay")
    whole = F.keeps_result(F.narrow(sums, blocks[:-1]), "exp")
    parts = Chunks(values, keys, query, key, scores, F.view(whole, (*blocks[:-1], ONE, ONE)))
    return parts, [zeros, outputs], [value, beta, decay, v_beta, k_beta, mask, sums, pairs, system, k_decayed]


def across(ctx: Context, m: GatedDeltaNet, blocks: Shape, parts: Chunks, begin: list[Tensor]) -> list[Tensor]:
    """Chunk by chunk, the state is read, corrected and handed on; the outputs of all, the last state, and what else is held.

    Takes away what it begins with.
    """
    batch, heads, size = blocks[0], blocks[1], blocks[3]
    state_shape, rows, keys = (batch, heads, m.k_dim, m.v_dim), (batch, heads, size, m.v_dim), (batch, heads, size, m.k_dim)
    square = (batch, heads, size, Axis("chunk_size", m.chunk))
    saved = saved_by_a_chunk(ctx, state_shape, rows, keys, square)
    core, state = begin.pop(), begin.pop()
    values = inter = None
    run = list(steps(ctx, m.chunk))
    for i, more in enumerate(run):
        values = F.sub(F.narrow(parts.values, rows), F.matmul(F.narrow(parts.keys_decayed, keys), state, rows, "values of the state"), "corrected values")
        inter = F.matmul(F.narrow(parts.query, keys), state, rows, "outputs of the state")
        inner = F.matmul(F.narrow(parts.scores, square), values, rows, "outputs within the chunk")
        core = scan.put(core, F.add(inter, inner, "outputs of the chunk"))
        del inner
        with ctx.tape.no_grad() if i == len(run) - 1 else nullcontext():  # nothing is asked of the last state, whose graph goes with it
            kept = F.mul(state, F.narrow(parts.decay, (batch, heads, ONE, ONE)), "decayed state")
            state = F.add(kept, F.matmul(F.narrow(parts.key, keys), values, state_shape, "update of the state"), "state")
            del kept
        if more is not None:
            state = scan.as_if_repeated(state, more, saved)
    assert inter is not None
    assert values is not None
    return [core, state, inter, values]


def saved_by_a_chunk(ctx: Context, state: Shape, rows: Shape, keys: Shape, square: Shape) -> list[tuple[Shape, str, str]]:
    """What the operators on one chunk save besides parts of what all share: the state before it and its corrected values.

    Autocast's products save copies of both of their factors instead; the decay of the state is a product in fp32.
    """
    autocast = ctx.settings.autocast
    if autocast is None:
        return [(state, "float32", "state"), (rows, "float32", "corrected values")]
    copies = [state, state, keys, keys, keys, square, rows, rows]
    return [(state, "float32", "state"), *((shape, autocast, f"{autocast} copy for autocast") for shape in copies)]
