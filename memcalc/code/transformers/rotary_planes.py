"""Rotary positions of three numbers: angles of each sequence for time, height and width, put together along the head."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.components import Rotary
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def plane_angles(ctx: Context, m: Rotary, dtype: str) -> tuple[Tensor, Tensor]:
    """Cosines and sines (batch, seq, dim) (Qwen2_5_VLRotaryEmbedding.forward, Qwen3VLTextRotaryEmbedding.forward, Glm4vTextRotaryEmbedding.forward)."""
    half, whole = Axis("head_dim/2", m.dim // 2), Axis("head_dim", m.dim)
    planes = (Axis("planes", 3), ctx.batch, ctx.seq, half)
    angles = ctx.tape.new(planes, "float32", "angles of each plane")
    cos = F.scale(ctx.tape.new(planes, "float32", "cos of each plane"))
    sin = F.scale(ctx.tape.new(planes, "float32", "sin of each plane"))
    made = []
    for name in ("sin", "cos"):
        part = ctx.tape.new((ctx.batch, ctx.seq, half), "float32", f"{name} of all planes") if m.planes != "interleaved" else None
        made.append(ctx.tape.new((ctx.batch, ctx.seq, whole), "float32", f"{name} in fp32"))
        del part
    del cos, sin
    wide_sin, wide_cos = made
    turned = F.cast(wide_cos, dtype, "cos"), F.cast(wide_sin, dtype, "sin")
    del angles
    return turned
