"""Attention masks: made once per step for each kind of attention in the model (masking_utils.py, create_causal_mask and relatives)."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.specs.model import Axis


def mask_name(window: int | None) -> str:
    """The key in ``ctx.shared`` of the mask for one kind of attention."""
    return "causal mask" if window is None else f"sliding mask of {window}"


def make_masks(ctx: Context, dtype: str) -> None:
    """Put the masks that this run needs into ``ctx.shared``.

    Eager attention adds a mask in the model's dtype for each sequence of the batch. The fused kernel skips a causal mask, and a
    sliding one while the keys are fewer than the window; otherwise it gets one of bools, shared by the batch.
    """
    for window in ctx.settings.windows:
        keys = Axis("keys", ctx.seq.size)
        square = (ctx.seq, keys)
        if ctx.settings.attention == "eager":
            flags = ctx.tape.new(square, "bool", "mask flags")
            ctx.shared[mask_name(window)] = ctx.tape.new((ctx.batch, *square), dtype, "mask")
            del flags
        elif ctx.settings.attention == "sdpa" and window is not None and ctx.reaches(window):
            flags = ctx.tape.new(square, "bool", "mask flags")
            ctx.shared[mask_name(window)] = ctx.tape.new(square, "bool", "mask")
            del flags
