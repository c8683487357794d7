"""Rotary positions: the angles, made once per step, and how they turn queries and keys."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.transformers import liger
from memcalc.code.transformers.rotary_pairs import complex_angles, turn_complex, turn_halves, turn_pairs
from memcalc.code.transformers.rotary_planes import plane_angles
from memcalc.components import Rotary
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Shape, Tensor


def make_angles(ctx: Context, m: Rotary, dtype: str) -> None:
    """Put cosines and sines into ``ctx.shared`` (LlamaRotaryEmbedding.forward).

    They are made in fp32 and stay so where the model turns with them as they are; GPT-J picks rows of a table instead, which is a buffer.
    """
    tokens: Shape = (ctx.batch, ctx.seq) if ctx.settings.packed else (ctx.seq,)
    whole: Shape = (*tokens, Axis("head_dim", m.dim))
    dtype = "float32" if m.precision in ("angles", "products") else dtype
    with ctx.tape.no_grad():
        if m.planes:
            ctx.shared[key(m, "cos")], ctx.shared[key(m, "sin")] = plane_angles(ctx, m, dtype)
            return
        if m.style == "tabled":
            ctx.shared[key(m, "sin and cos")] = F.cast(ctx.tape.new(whole, "float32", "rows of the table"), dtype, "sin and cos")
            return
        if m.style == "complex":
            ctx.shared[key(m, "complex angles")] = complex_angles(ctx, m.dim)
            return
        half = ctx.tape.new((*tokens, Axis("head_dim/2", m.dim // 2)), "float32", "angles")
        whole = half.shape if m.style == "halves" else whole
        angles = half if m.style == "halves" else ctx.tape.new(whole, "float32", "angles twice")
        cos = F.scale(ctx.tape.new(whole, "float32", "cos in fp32"))
        sin = F.scale(ctx.tape.new(whole, "float32", "sin in fp32"))
        ctx.shared[key(m, "cos")] = F.cast(cos, dtype, "cos")
        ctx.shared[key(m, "sin")] = F.cast(sin, dtype, "sin")
        del half, angles, cos, sin


def key(m: Rotary, name: str) -> str:
    """The key of a set of angles in ``ctx.shared``."""
    return f"{m.name} {name}" if m.name else name


def rotate(ctx: Context, m: Rotary, query: Tensor, keys: Tensor, *, held: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Queries and keys turned (apply_rotary_pos_emb of the model).

    Args:
        ctx, m: as for any program.
        query, keys: (batch, heads, seq, head_dim).
        held: takes what the attention's own code has variables for, where it turns without a function.
    """
    swapped = ctx.settings.liger.rope
    if swapped or m.inlined:
        return turn_by_kernel(ctx, m, query, keys) if swapped else turn_inline(ctx, m, query, keys, [] if held is None else held)
    if m.style == "complex":
        return turn_complex(ctx.shared[key(m, "complex angles")], query, keys)
    if m.style in ("pairs", "halves"):
        return (turn_pairs if m.style == "pairs" else turn_halves)(ctx.shared[key(m, "cos")], ctx.shared[key(m, "sin")], query, keys)
    if m.precision == "all":
        return turn_in_fp32(ctx, m, query, keys)
    angles = shared_angles(ctx, m)
    dtype = query.dtype
    if m.sliced:
        return turn_slice(m, query, angles, "query"), turn_slice(m, keys, angles, "key")
    query, keys = turn(m, query, angles, "query"), turn(m, keys, angles, "key")
    return (query, keys) if m.precision == "model" else (F.cast(query, dtype, "query"), F.cast(keys, dtype, "key"))


def turn_by_kernel(ctx: Context, m: Rotary, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Both in place by Liger's kernel; those that are slices of one projection (Phi-3) are copied first."""
    if m.sliced:
        query, keys = F.clone(query, "query"), F.clone(keys, "key")
    return liger.rotate(query, keys, shared_angles(ctx, m))


def turn_inline(ctx: Context, m: Rotary, query: Tensor, keys: Tensor, held: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Turned parts of both, then both put together with their rests (PhiAttention.forward, GPTJAttention.forward)."""
    cuts = [(cut(x, m.dim), cut(x, x.shape[-1].size - m.dim), name) for x, name in ((query, "query"), (keys, "key"))]
    if m.style == "tabled":
        cuts.reverse()
        turned = [turn(m, part, table_angles(ctx, m), name) for part, _, name in cuts]
    else:
        angles = shared_angles(ctx, m)
        turned = [turn(m, part, angles, name) for part, _, name in cuts]
    held += [*turned, *(rest for _, rest, _ in cuts)]
    joined = [F.cat((part, rest), query.shape[-1], name) for part, (_, rest, name) in zip(turned, cuts, strict=True)]
    if m.style == "tabled":
        joined.reverse()
    return F.cast(joined.pop(0), query.dtype, "query"), F.cast(joined.pop(), query.dtype, "key")


def turn_slice(m: Rotary, x: Tensor, angles: tuple[Tensor, Tensor], name: str) -> Tensor:
    """The first part of each head turned, and put together with the rest (apply_rotary_pos_emb of Phi-3)."""
    part, rest = cut(x, m.dim), cut(x, x.shape[-1].size - m.dim)
    return F.cat((turn(m, part, angles, name), rest), x.shape[-1], name)


def puts_heads_first(ctx: Context, m: Rotary | None) -> bool:
    """Whether queries come out as a fresh tensor with heads before tokens in memory, not as a view of the projection or laid out like one."""
    return m is not None and m.sliced and m.style != "tabled" and not ctx.settings.liger.rope


def turn(m: Rotary, x: Tensor, angles: tuple[Tensor, Tensor], name: str) -> Tensor:
    """``x * cos + rotate_half(x) * sin``; saves only the angles."""
    if m.precision == "products":
        left = F.mul(F.cast(x, "float32"), angles[0], f"{name} * cos")
        return F.add(left, F.mul(F.cast(rotate_half(x), "float32"), angles[1], f"{name} * sin"), name)
    return F.add(F.mul(x, angles[0], f"{name} * cos"), F.mul(rotate_half(x), angles[1], f"{name} * sin"), name)


def shared_angles(ctx: Context, m: Rotary) -> tuple[Tensor, Tensor]:
    """Cosines and sines, as the layer uses them."""
    cos, sin = ctx.shared[key(m, "cos")], ctx.shared[key(m, "sin")]
    if m.style == "repeated":
        return F.like(cos, "cos of each pair"), F.like(sin, "sin of each pair")
    return cos, sin


def rotate_half(x: Tensor) -> Tensor:
    """``cat(-x2, x1)`` of the two halves, and ``stack(-x2, x1)`` of even and odd elements, whose sizes are the same."""
    half = Axis("head_dim/2", x.shape[-1].size // 2)
    first, second = F.slice_last(x, half), F.slice_last(x, half)
    return F.cat((F.neg(second), first), x.shape[-1], "rotated half")


def turn_in_fp32(ctx: Context, m: Rotary, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Copies in fp32 are turned and cast back (apply_rotary_pos_emb of Cohere)."""
    dtype, angles = query.dtype, shared_angles(ctx, m)
    query, keys = F.cast(query, "float32", "query in fp32"), F.cast(keys, "float32", "key in fp32")
    query, keys = turn(m, query, angles, "turned query"), turn(m, keys, angles, "turned key")
    return F.cast(query, dtype, "query"), F.cast(keys, dtype, "key")


def table_angles(ctx: Context, m: Rotary) -> tuple[Tensor, Tensor]:
    """Cosines and sines from the table's rows, spread out over the pairs (apply_rotary_pos_emb of GPT-J)."""
    table = ctx.shared[key(m, "sin and cos")]
    sin, cos = F.like(table, "sin of each pair"), F.like(table, "cos of each pair")
    return cos, sin


def cut(x: Tensor, size: int) -> Tensor:
    """A slice of the last axis."""
    return F.slice_last(x, Axis("head_dim", size))
