"""Liger's fused kernels in the place of norms, rotary positions, gates and experts (linkedin/Liger-Kernel 0.8.5)."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import fit_to
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Shape, Tensor
from memcalc.units import ceil_div

MULTIPROCESSORS = 132
"""Of an H100 (NVIDIA H100 white paper); a norm's backward makes a row of partial sums for each."""

TILE = 64
"""Rows of an expert that a block of the kernels for experts takes (ops/fused_moe.py, ``BLOCK_M_TOKEN``)."""

Kind = tuple[Shape, str]


def has_norm(ctx: Context) -> bool:
    """Whether a kernel is in the place of the RMSNorm that runs."""
    kernels = ctx.settings.liger
    return kernels.rms_norm and ctx.place()[0][-1] not in kernels.own


def has_layer_norm(ctx: Context) -> bool:
    """Whether a kernel is in the place of the LayerNorm that runs."""
    kernels = ctx.settings.liger
    return kernels.layer_norm and ctx.place()[0][-1] not in kernels.own_layer_norms


def rms_norm(ctx: Context, x: Tensor, weight: Tensor) -> Tensor:
    """Saves x and, in fp32, a reciprocal root mean square for each row; the gradient of x takes the place of that of the output (ops/rms_norm.py).

    Where a model's residual branches need the latter, too, it is a tensor of its own.
    """
    tape, in_place = x.tape, ctx.settings.liger.in_place
    out = F.like(x, "output")
    inverse = tape.new(x.shape[:-1], "float32", "inverse root mean square")
    kind = (weight.shape, weight.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        parts = _partial_sums(tape, kind[0]) if wants[1] else None
        of_x = _same(g) if in_place else F.like(g, "gradient of norm")
        return (of_x if wants[0] else None), None if parts is None else _total(parts, kind)

    tape.record(out, (x, weight), (x, inverse), backward)
    return out


def in_order(ctx: Context, x: Tensor, name: str) -> Tensor:
    """A slice as its norm takes it: a copy (ops/utils.py, ``ensure_contiguous``)."""
    return F.clone(x, name) if ctx.settings.liger.rms_norm else x


def layer_norm(x: Tensor, params: list[Tensor]) -> Tensor:
    """Saves x and, in fp32, the mean and reciprocal deviation of each row (ops/layer_norm.py)."""
    tape = x.tape
    out = F.like(x, "output")
    saves = (x, *(tape.new(x.shape[:-1], "float32", name) for name in ("mean", "reciprocal deviation")))
    kinds = [(p.shape, p.dtype) for p in params]

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        parts = [_partial_sums(tape, kind[0]) if want else None for want, kind in zip(wants[1:], kinds, strict=True)]
        of_x = F.like(g, "gradient of norm")
        return (of_x if wants[0] else None), *(None if part is None else _total(part, kind) for part, kind in zip(parts, kinds, strict=True))

    tape.record(out, (x, *params), saves, backward)
    return out


def _partial_sums(tape: Tape, shape: Shape) -> Tensor:
    return tape.new((Axis("multiprocessors", MULTIPROCESSORS), *shape), "float32", "partial sums")


def _total(parts: Tensor, kind: Kind) -> Tensor:
    """The gradient of a weight out of its partial sums."""
    total = parts.tape.new(kind[0], "float32", "gradient of weight in fp32")
    return total if kind[1] == "float32" else F.like(total, "gradient of weight", kind[1])


def gate_mul(gate: Tensor, up: Tensor) -> Tensor:
    """``act(gate) * up`` in one kernel; saves both, and writes their gradients into them (ops/swiglu.py, ops/geglu.py)."""
    out = F.like(gate, "gate * up")
    gate.tape.record(out, (gate, up), (gate, up), lambda wants, g, a, b: (_same(a), _same(b)))
    return out


def relu_squared(x: Tensor) -> Tensor:
    """``relu(x)²`` in one kernel; saves x (ops/relu_squared.py)."""
    return F.activation(x, "relu squared")


def cross_entropy(logits: Tensor) -> Tensor:
    """The mean loss of logits (batch, tokens, vocabulary), which become their own gradient in place (ops/cross_entropy.py)."""
    tape, rows = logits.tape, logits.shape[:-1]
    losses, mask = tape.new(rows, logits.dtype, "losses"), tape.new(rows, "bool", "labelled tokens")
    tape.new(rows, "int64", "labels to check")
    loss = tape.new((), logits.dtype, "loss")
    del losses, mask
    tape.record(loss, (logits,), (logits,), lambda wants, g, saved: (_same(saved),))
    return loss


def rotate(query: Tensor, keys: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Both turned in place; saves the angles (ops/rope.py)."""
    turned = [_same(query), _same(keys)]
    query.tape.record(turned, (query, keys), angles, lambda wants, *given: (given[0], given[1]))
    return turned[0], turned[1]


def experts(x: Tensor, weights: Tensor, indices: Tensor, matrices: tuple[Tensor, Tensor], inner: Axis) -> Tensor:
    """All experts in one function (ops/fused_moe.py, ``LigerFusedMoEFunction``).

    Saved are x, what comes out of the first product, and where each row goes; backward makes the activations and both gradients of weights anew, whether
    or not these take one. Under autocast products are in the dtype of x, as those of any kernel of one's own.

    Args:
        x: (tokens, hidden).
        weights, indices: (tokens, top_k).
        matrices: both stacked weights, (experts, 2 * inner, hidden) and (experts, hidden, inner).
        inner: the width between them.
    """
    tape, (tokens, hidden), top_k, count = x.tape, x.shape, indices.shape[1].size, matrices[0].shape[0]
    rows, both = Axis("tokens * top_k", tokens.size * top_k), Axis(f"2 * {inner.name}", 2 * inner.size)
    chosen = F.like(indices, "chosen experts", "int32")
    places, counts = _places(tape, rows, count, top_k)
    before = tape.new((rows, both), x.dtype, "gate and up of rows")
    after = tape.new((rows, inner), x.dtype, "gate * up of rows")
    answers = tape.new((rows, hidden), x.dtype, "rows of experts")
    out = F.like(x, "output of experts")
    del after, answers, counts, chosen
    kinds = [(t.shape, t.dtype) for t in matrices]

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_before = tape.new((rows, both), g.dtype, "gradient of gate and up")
        weighted = tape.new((rows, inner), g.dtype, "weighted gate * up")
        of_weights = tape.new((rows,), g.dtype, "gradient of scores")
        of_down = tape.new(*kinds[1], "gradient of weight")
        of_rows = tape.new((rows, hidden), g.dtype, "gradient of rows")
        of_x = F.like(g, "gradient of input")
        of_up = tape.new(*kinds[0], "gradient of weight")
        del of_before, weighted, of_rows
        made = (of_x, of_up, of_down, F.view(of_weights, (tokens, Axis("top_k", top_k))))
        return tuple(t if want else None for want, t in zip(wants, made, strict=True))

    inputs = (x, *matrices, weights)
    tape.record(out, inputs, (x, before, weights, *places), backward, fit_to([(t.shape, t.dtype) for t in inputs]))
    return out


def _places(tape: Tape, rows: Axis, count: Axis, top_k: int) -> tuple[list[Tensor], Tensor]:
    """Where each row comes from and goes to, and rows per expert (compute_routing_metadata). Tiles alone depend on how many: as many each."""
    blocks = Axis("blocks of tokens", ceil_div(ceil_div(rows.size, top_k), max(1, 1024 // (1 << (top_k - 1).bit_length()))))
    by_block = tape.new((count, blocks), "int32", "rows per expert and block")
    counts = tape.new((count,), "int32", "rows per expert")
    bounds = Axis("experts + 1", count.size + 1)
    starts = tape.new((bounds,), "int32", "first row of each expert")
    tiles = tape.new((bounds,), "int32", "first tile of each expert")
    num = Axis("tiles", count.size * ceil_div(ceil_div(rows.size, count.size), TILE))
    found = [starts, *(tape.new((num,), "int32", name) for name in ("first row of each tile", "expert of each tile"))]
    found += [tape.new((rows,), "int32", name) for name in ("place of each row", "row of each place", "token of each row")]
    del by_block, tiles
    return found, counts


def _same(x: Tensor) -> Tensor:
    return Tensor(x.tape, x.shape, x.dtype, x.storage)
