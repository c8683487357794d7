"""Attention masks: made once per step for each kind of attention in the model (masking_utils.py, create_causal_mask and relatives)."""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context
from memcalc.code.keeping import num_keys
from memcalc.components import Alibi
from memcalc.specs.model import Axis


def mask_name(window: int | None, *, causal: bool = True) -> str:
    """The key in ``ctx.shared`` of the mask for one kind of attention."""
    if not causal:
        return f"two-sided mask of {window}"
    return "causal mask" if window is None else f"sliding mask of {window}"


def make_masks(ctx: Context, dtype: str, *, always: tuple[int | None, ...] = (), each: bool = False) -> None:
    """Put the masks that this run needs into ``ctx.shared``.

    Eager attention adds a mask in the model's dtype for each sequence of the batch. The fused kernel skips a causal mask, and a
    sliding one while the keys are fewer than the window; otherwise it gets one of bools, shared by the batch. A mask that hides
    nothing from both sides is not made at all. Masks of the windows in `always` are made even where no layer needs them, and
    with `each` those of windows have bools for each sequence of the batch (Llama 4's chunks), as all have where the batch is padded.
    """
    if ctx.settings.late_masks:
        return
    for window in dict.fromkeys((*ctx.settings.windows, *always)):
        if is_needed(ctx, window, always):
            name = mask_name(window) if window in ctx.settings.windows else f"unused {mask_name(window)}"
            make_mask(ctx, name, dtype, each=ctx.settings.padded or (each and window is not None), keys=num_keys(ctx, window))
    for window in ctx.settings.two_sided_windows:
        if window is None:
            make_mask(ctx, mask_name(None, causal=False), dtype, each=True)
        elif ctx.reaches(window):
            measure(ctx)
            make_mask(ctx, mask_name(window, causal=False), dtype)


def is_needed(ctx: Context, window: int | None, always: tuple[int | None, ...]) -> bool:
    """Whether there is a mask for a window (None: the whole sequence)."""
    if ctx.settings.attention == "eager" or ctx.settings.padded or ctx.settings.prefix:
        return True
    return window in always if window is None else ctx.reaches(window)


def measure(ctx: Context) -> None:
    """The distance of each query from each key, in 64-bit integers, twice for a moment (sliding_window_bidirectional_overlay)."""
    distance = ctx.tape.new((ctx.seq, Axis("keys", ctx.seq.size)), "int64", "distance")
    absolute = ctx.tape.new(distance.shape, "int64", "absolute distance")
    del distance, absolute


def make_mask(ctx: Context, name: str, dtype: str, *, each: bool = False, keys: Any = None) -> None:
    """One mask: bools, and for eager attention numbers to add; over as many keys as tokens, or so many."""
    if ctx.settings.attention == "flash_attention_2":
        return
    one = (ctx.seq, Axis("keys", ctx.seq.size if keys is None else keys))
    square = (ctx.batch, *one) if each else one
    flags = ctx.tape.new(square, "bool", "mask flags")
    if ctx.settings.attention == "eager":
        ctx.shared[name] = ctx.tape.new((ctx.batch, *one), dtype, "mask")
    else:
        ctx.shared[name] = ctx.tape.new(square, "bool", "mask")
    del flags


def make_alibi(ctx: Context, m: Alibi, dtype: str) -> None:
    """The bias for positions, and the mask as the model's code makes it over (build_alibi_tensor, build_mpt_alibi_tensor)."""
    heads, keys = Axis("heads", m.heads // ctx.settings.tp), Axis("keys", ctx.seq.size)
    if m.style == "table":
        ctx.shared["alibi"] = ctx.tape.new((heads, Axis("max_seq_len", m.length)), "float32", "alibi")
        ctx.shared[mask_name(None)] = ctx.tape.new((ctx.batch, ctx.seq, keys), "bool", "mask")
        return
    if m.style == "shared":
        whole = ctx.seq.size if ctx.settings.training else m.length
        mask = ctx.tape.new((heads, Axis("queries", whole), Axis("keys", whole)), dtype, "mask with alibi")
        ctx.keep(mask, "mask with alibi")
        if ctx.settings.training:
            ctx.shared[mask_name(None)] = mask
        return
    ctx.shared["alibi"] = ctx.tape.new((ctx.batch, heads, keys), dtype, "alibi")
    if m.style == "mask":
        ctx.shared[mask_name(None)] = ctx.tape.new((ctx.batch, heads, ctx.seq, keys), dtype, "mask with alibi")
