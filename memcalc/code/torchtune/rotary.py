"""Rotary positions: neighbouring pairs turned in fp32 (Llama, Mistral, Gemma), or halves (Qwen, Phi 3), by a table that is a buffer."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.torchtune import compiled
from memcalc.components import Rotary
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import sub
from memcalc.tape.functional.scan import stack
from memcalc.tape.tensor import Tensor

ONE = Axis("one", 1)


def turn(ctx: Context, m: Rotary, x: Tensor, name: str) -> Tensor:
    """x (batch, seq, heads, head_dim) → the same (RotaryPositionalEmbeddings.forward and its relatives)."""
    if compiled.is_compiled(ctx):
        return compiled.turned(x, name)
    return turn_pairs(ctx, x, name) if m.style == "interleaved" else turn_halves(ctx, m, x, name)


def rows(ctx: Context, width: Axis) -> Tensor:
    """The table's rows: a view of the first, or those of the batch's positions, a copy for each call."""
    if not ctx.settings.packed:
        return Tensor(ctx.tape, (ctx.seq, ONE, width), "float32", None)
    return ctx.tape.new((ctx.batch, ctx.seq, width), "float32", "rows of the table of angles")


def turn_pairs(ctx: Context, x: Tensor, name: str) -> Tensor:
    """Even and odd elements of an fp32 copy, turned, stacked and cast back; saves the angles."""
    half = Axis("head_dim/2", x.shape[-1].size // 2)
    table = rows(ctx, x.shape[-1])
    wide = F.cast(x, "float32", f"{name} in fp32")
    angles = Tensor(ctx.tape, (*table.shape[:-1], half), "float32", table.storage)
    first = sub(F.mul(F.slice_last(wide, half), angles, f"{name} * cos"), F.mul(F.slice_last(wide, half), angles, f"{name} * sin"), f"even {name}")
    second = F.add(F.mul(F.slice_last(wide, half), angles, f"{name} * cos"), F.mul(F.slice_last(wide, half), angles, f"{name} * sin"), f"odd {name}")
    turned = stack((first, second), x.shape, f"turned {name} in fp32")
    del first, second
    return F.cast(turned, x.dtype, f"{name} after rotary")


def turn_halves(ctx: Context, m: Rotary, x: Tensor, name: str) -> Tensor:
    """``x * cos + rotated * sin``, with angles cast to the dtype of x for each call (Qwen), or in fp32 as they are (Phi 3); saves the angles."""
    dim = x.shape[-1]
    half = Axis("head_dim/2", dim.size // 2)
    table = rows(ctx, Axis("2 * head_dim", 2 * dim.size))
    shape = (*table.shape[:-1], dim)
    if m.precision == "angles" or x.dtype == "float32":
        cos, sin = (Tensor(ctx.tape, shape, "float32", table.storage) for _ in range(2))
    else:
        cos, sin = (ctx.tape.new(shape, x.dtype, which) for which in ("cos", "sin"))
    first, second = F.slice_last(x, half), F.slice_last(x, half)
    rotated = F.cat((F.neg(second), first), dim, "rotated half")
    turned = F.add(F.mul(x, cos, f"{name} * cos"), F.mul(rotated, sin, f"{name} * sin"), f"turned {name}")
    return F.cast(turned, x.dtype, f"{name} after rotary")
