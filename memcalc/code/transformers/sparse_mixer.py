"""The router of Phi-3.5-MoE: two experts, each drawn from a masked softmax, with a gradient of its own."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.transformers.router import Choice, choose, logits_of
from memcalc.components.moe import SparseMixerRouter
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor

ONE = Axis("1", 1)


@choose.register
def sparse_mixer_router(m: SparseMixerRouter, ctx: Context, x: Tensor) -> Choice:
    """Two draws one after the other (sparsemixer); everything has a name of its own and is held until both are done."""
    logits = logits_of(ctx, m, x)
    held: list[Tensor] = []
    first, chosen = draw(ctx, logits, held)
    with ctx.tape.no_grad():
        held.append(F.like(logits, "scores without the first"))
    second, chosen_second = draw(ctx, logits, held)
    weights = F.cat((first, second), Axis("top_k", 2), "multipliers")
    indices = ctx.tape.new(weights.shape, "int64", "selected experts")
    del first, second, chosen, chosen_second
    return Choice(logits, weights, indices)


def draw(ctx: Context, scores: Tensor, held: list[Tensor]) -> tuple[Tensor, Tensor]:
    """One multiplier and one expert for each token (PhimoeMultiplier)."""
    tape, column = ctx.tape, (scores.shape[0], ONE)
    with tape.no_grad():
        best = tape.new(column, scores.dtype, "best"), tape.new(column, "int64", "which is best")
        factor = F.like(scores, "factor")
        distance, quotient = F.like(scores, "distance"), F.like(scores, "relative distance")
        mask = F.like(scores, "mask of scores", "bool")
        del distance, quotient
        masked = F.like(scores, "masked scores")
        noise, drawn = F.like(scores, "noise"), F.like(scores, "scores and noise")
        del noise
        chosen = tape.new(column, "int64", "selected expert")
        del drawn
        gates = F.like(scores, "gates")
        del masked
        plain = tape.new(column, scores.dtype, "multiplier")
        largest = tape.new(column, scores.dtype, "largest gate"), tape.new(column, "int64", "which is largest")
        midpoint = tape.new(column, scores.dtype, "midpoint")
        held.extend((best[1], factor, mask, chosen, gates, plain, *largest, midpoint))
    out = tape.new(column, scores.dtype, "multiplier at the midpoint")

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor]:
        scaled, negative = F.like(g, "scaled gradient"), F.like(g, "negative gradient")
        made = F.like(scores_like, "gradient of scores")
        del scaled, negative
        return (made,)

    scores_like = Tensor(tape, scores.shape, scores.dtype, None)
    tape.record(out, (scores,), (plain, chosen, gates, mask), backward)
    return out, chosen
