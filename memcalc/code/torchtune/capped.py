"""Scores in full, squashed by tanh (Gemma 2): masks are made anew by each layer, in the process's default dtype, fp32."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.release import let_go
from memcalc.components import Attention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def attend(ctx: Context, m: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(batch, heads, seq, head_dim) in, (batch, seq, heads * head_dim) out (Gemma2Attention.forward). fp32 masks widen the scores."""
    several = not ctx.has_one_sequence
    shape = (ctx.batch, query.shape[1], query.shape[2], Axis("keys", ctx.seq.size))
    query = F.scale_in_place(query)
    scores = F.matmul(in_order(query, several=several), in_order(key, several=several), shape, "scores")
    variables = masks(ctx, has_window=m.window is not None)
    scores = capped(scores, "scores")
    scores = F.softmax(F.add(scores, variables[0], "masked scores"), name="probabilities in full precision")
    scores = F.cast(scores, query.dtype, "probabilities")
    out = F.matmul(scores, in_order(value, several=several), query.shape, "attention output")
    return F.clone(out, "attention output in order")


def in_order(x: Tensor, *, several: bool) -> Tensor:
    """As a batched product takes heads: those of several sequences are copied."""
    return F.clone(x, "heads in order") if several else x


def masks(ctx: Context, *, has_window: bool) -> list[Tensor]:
    """The mask, and what else has a variable: with a window a matrix of ones, and the window among them."""
    shape = (ctx.seq, Axis("keys", ctx.seq.size))
    visible = ctx.tape.new(shape, "bool", "visible keys")
    hidden = ctx.tape.new(shape, "bool", "hidden keys")
    mask = ctx.tape.new(shape, "float32", "mask")
    del visible, hidden
    if not has_window:
        return [mask]
    ones = ctx.tape.new(shape, "float32", "ones")
    upper, lower = (ctx.tape.new(shape, "float32", "one side of the window") for _ in range(2))
    window = ctx.tape.new(shape, "float32", "window")
    del upper, lower
    inside = ctx.tape.new(shape, "bool", "keys inside the window")
    mask = ctx.tape.new(shape, "float32", "mask")
    del inside
    return [mask, ones, window]


def capped(x: Tensor, name: str) -> Tensor:
    """``cap * tanh(x / cap)``."""
    return F.scale(F.tanh(F.scale(x, f"{name} / cap"), f"squashed {name}"), f"capped {name}")


def capped_states(x: Tensor) -> Tensor:
    """The final norm squashes what it gives, and the head's logits are as they are (Gemma2FinalNorm.forward)."""
    begin = len(x.tape.nodes)
    out = capped(x, "hidden states")
    let_go(x, begin)
    return out
