"""Adapters: LoRALinear, and one for queries, keys and values together, whose update is spread over the columns that have one (LoRAQKVLinear)."""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.components import Linear
from memcalc.components.lora import LoraLinear
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(LoraLinear)
def lora_linear(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """``linear(x) + dropout(x) @ A.T @ B.T * scaling`` (LoRALinear.forward)."""
    pretrained = ctx.run(m.base_layer, x, "base_layer")
    update = F.scale(ctx.run(m.lora_B, ctx.run(m.lora_A, dropout(ctx, x, m.dropout))), "update")
    return F.add(pretrained, update, "output")


def qkv_update(ctx: Context, parts: Sequence[Linear | LoraLinear], x: Tensor, width: Axis) -> Tensor:
    """The update of the whole projection: one product down, a convolution up, group by group or all at once, and zeros where there is no adapter.

    Args:
        ctx: of the run.
        parts: queries, keys and values, of which some have adapters.
        x: what they read.
        width: of all three.
    """
    adapted = [m for m in parts if isinstance(m, LoraLinear)]
    rank, out = adapted[0].lora_A.outputs.size, Axis("adapted columns", sum(m.outputs.size for m in adapted))
    low = joined_product(ctx, dropout(ctx, x, adapted[0].dropout), [(m.name, m.lora_A) for m in adapted], Axis("r of all", rank * len(adapted)), "down")
    if all(m.outputs.size == parts[0].outputs.size for m in parts):
        update = joined_product(ctx, low, [(m.name, m.lora_B) for m in adapted], out, "update")
    else:
        each = [joined_product(ctx, low, [(m.name, m.lora_B)], m.outputs, f"update of {m.name}") for m in adapted]
        update = F.cat(each, out, "update")
        each.clear()
    if len(adapted) == len(parts):
        return F.scale(update, "scaled update")
    spread = spread_over(update, width)
    del update
    return F.scale(spread, "scaled update")


def joined_product(ctx: Context, x: Tensor, parts: Sequence[tuple[str, Linear]], out: Axis, name: str) -> Tensor:
    """x through factors that stand in one tensor; saves x and those."""
    weights = []
    for module, m in parts:
        with ctx.inside(module), ctx.inside(m.name):
            weights.append(ctx.parameter(next(m.own_weights())))
    y = ctx.tape.new((*x.shape[:-1], out), x.dtype, name)
    kinds, shape = [(w.shape, w.dtype) for w in weights], (x.shape, x.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_x = ctx.tape.new(*shape, f"gradient of input of {name}") if wants[0] else None
        return (of_x, *(ctx.tape.new(*kind, "gradient of weight") if want else None for kind, want in zip(kinds, wants[1:], strict=True)))

    saves = ((x,) if any(w.requires_grad for w in weights) else ()) + (tuple(weights) if x.requires_grad else ())
    ctx.tape.record(y, (x, *weights), saves, backward)
    return y


def spread_over(update: Tensor, width: Axis) -> Tensor:
    """``zeros.index_copy_(-1, index, update)``; saves the index, and the update for its shape."""
    tape = update.tape
    whole = tape.new((*update.shape[:-1], width), update.dtype, "update between zeros")
    index = tape.new((update.shape[-1],), "int64", "adapted columns")
    tape.record(whole, (update,), (index, update), lambda wants, g, index, update: (F.like(update, "gradient of update"),))
    return whole
