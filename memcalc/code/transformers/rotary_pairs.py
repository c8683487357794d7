"""Rotary positions of parts of heads, as DeepSeek's and gpt-oss's code turn them: complex products, or pairs of slices."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import sub
from memcalc.tape.tensor import Tensor


def complex_angles(ctx: Context, dim: int) -> Tensor:
    """Angles as complex numbers, scaled; real and imaginary parts in fp32 (DeepseekV2RotaryEmbedding.forward)."""
    half, parts = Axis("head_dim/2", dim // 2), Axis("real and imaginary", 2)
    angles = ctx.tape.new((ctx.seq, half), "float32", "angles")
    ones = F.like(angles, "ones")
    polar = ctx.tape.new((ctx.seq, half, parts), "float32", "unscaled complex angles")
    del ones
    scaled = F.like(polar, "complex angles")
    del polar, angles
    return scaled


def turn_complex(angles: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Copies in fp32, seen as complex numbers, times the shared complex angles; backward conjugates those in a copy (apply_rotary_emb)."""
    wide_q, wide_k = F.cast(query, "float32", "query in fp32"), F.cast(key, "float32", "key in fp32")
    turned_q = F.cast(times(wide_q, angles), query.dtype, "turned query")
    turned_k = F.cast(times(wide_k, angles), key.dtype, "turned key")
    del wide_q, wide_k
    return turned_q, turned_k


def times(x: Tensor, angles: Tensor) -> Tensor:
    """The complex product; saves the angles."""
    out = F.like(x, "complex product")

    def backward(wants: tuple[bool, ...], g: Tensor, angles: Tensor) -> tuple[Tensor]:
        conjugate = F.like(angles, "conjugate angles")
        made = F.like(g, "gradient of complex product")
        del conjugate
        return (made,)

    x.tape.record(out, (x,), (angles,), backward)
    return out


def turn_pairs(cos: Tensor, sin: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """``x1 * cos - x2 * sin`` and ``x2 * cos + x1 * sin`` of even and odd elements or of halves, joined (apply_rotary_pos_emb_interleave)."""
    slices = [halves(x) for x in (query, key)]
    turned = [join(parts, cos, sin, x.shape[-1], name) for parts, x, name in zip(slices, (query, key), ("query", "key"), strict=True)]
    return turned[0], turned[1]


def turn_halves(cos: Tensor, sin: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """The same of chunks, one tensor after the other, with angles made for one half (apply_rotary_pos_emb of gpt-oss)."""
    turned = []
    for x, name in ((query, "query"), (key, "key")):
        half = Axis("head_dim/2", x.shape[-1].size // 2)
        first, second = F.split_last(x, (half, half))
        turned.append(join((first, second), cos, sin, x.shape[-1], name))
        del first, second
    return turned[0], turned[1]


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two slices of half the size."""
    half = Axis("head_dim/2", x.shape[-1].size // 2)
    return F.slice_last(x, half), F.slice_last(x, half)


def join(parts: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor, axis: Axis, name: str) -> Tensor:
    """The two turned slices side by side. Only half of the angles is read, as a view of all."""
    first, second = parts
    half = tuple(F.view(angles, (angles.shape[0], first.shape[-1])) for angles in (cos, sin))
    one = sub(F.mul(first, half[0], f"{name} * cos"), F.mul(second, half[1], f"{name} * sin"), f"{name}, first")
    other = F.add(F.mul(second, half[0], f"{name} * cos"), F.mul(first, half[1], f"{name} * sin"), f"{name}, second")
    return F.cat((one, other), axis, f"turned {name}")
