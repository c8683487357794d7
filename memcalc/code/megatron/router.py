"""The router: logits, scores, and a dense table of each token's chosen experts.

Source: megatron/core/transformer/moe/router.py (TopKRouter) and moe_utils.py (router_gating_linear, topk_routing_with_score_function).
"""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.megatron.options import options
from memcalc.components.moe import Router, SigmoidRouter, SoftmaxRouter
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


def route(ctx: Context, m: Router, x: Tensor) -> tuple[Tensor, Tensor]:
    """x (tokens, hidden) → scores (tokens, experts), zero where an expert is not chosen, and which are chosen, as bools."""
    with ctx.inside(m.module_name):
        logits = gating(ctx, m, x)
        scores, indices = score(m, logits)
        probs = F.cast(scores, logits.dtype, "probabilities of chosen experts")
        del scores
        table = scatter(logits, probs, indices)
        whole = like(logits, "chosen, counted", "int32")
        counted = like(whole, "chosen, as numbers")
        del whole
        chosen = like(counted, "chosen experts", "bool")
        del counted
        return table, chosen


def gating(ctx: Context, m: Router, x: Tensor) -> Tensor:
    """Logits in the router's dtype; saves x as it is, and the weight. Of another dtype both are cast again for backward, which answers in theirs."""
    params = [ctx.parameter(weight) for weight in m.own_weights() if not weight.frozen]
    dtype = options(ctx).router_dtype or x.dtype
    out, wide = x.tape.new((x.shape[0], m.experts), dtype, "logits"), dtype != x.dtype

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, *weights: Tensor) -> tuple[Tensor | None, ...]:
        of_x = like(x, "gradient of input of router", dtype) if wants[0] else None
        again = like(x, "input of router, cast", dtype) if wide and any(wants[1:]) else None
        grads = [g.tape.new(p.shape, dtype, "gradient of weight") if w else None for p, w in zip(params, wants[1:], strict=True)]
        del again
        narrow = (lambda t, name: None if t is None else like(t, name, x.dtype)) if wide else (lambda t, name: t)
        of_x = narrow(of_x, "gradient of input of router, cast")
        return (of_x, *(narrow(grad, "gradient of weight, cast") for grad in grads))

    x.tape.record(out, (x, *params), (x, *params), backward)
    return out


def score(m: Router, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and indices of the chosen experts, fp32 and int64.

    A softmax over all experts comes first only where its values stay as they are; one that is normalised afterwards is the same as one
    over the chosen alone.
    """
    k = Axis("top_k", m.top_k)
    if isinstance(m, SigmoidRouter):
        scores = F.keeps_result(F.cast(logits, "float32", "logits in fp32"), "scores of all experts")
        with scores.tape.no_grad():
            indices = routing.topk(F.add_scalar(scores, "corrected scores"), k)[1]
        picked = routing.gather(scores, indices, "scores of chosen experts")
        del scores
        if m.normalise and m.top_k > 1:
            total = F.add_scalar(routing.sum_over(picked, 1, "sum of scores", keep=True), "sum of scores + eps")
            picked = routing.div(picked, total, "normalised scores")
        return (F.scale(picked, "scaled scores") if m.scaled else picked), indices
    if isinstance(m, SoftmaxRouter) and not m.normalise:
        picked, indices = routing.topk(F.softmax(logits, "float32", "scores of all experts"), k)
        return (F.scale(picked, "scaled scores") if m.scaled else picked), indices
    best, indices = routing.topk(logits, k)
    return F.softmax(best, "float32", "scores of chosen experts"), indices


def scatter(logits: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """``zeros_like(logits).scatter(1, indices, probs)``. Saves the indices."""
    zeros = like(logits, "zeros")
    table = like(logits, "scores by expert")
    del zeros
    shape = probs.shape
    logits.tape.record(table, (probs,), (indices,), lambda wants, g, indices: (g.tape.new(shape, g.dtype, "gradient of chosen"),))
    return table
