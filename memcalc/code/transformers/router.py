"""Routers: from hidden states to each token's experts and their weights. Checked operator by operator against traced steps."""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

from memcalc.code.context import Context
from memcalc.components.moe import CorrectedSoftmaxRouter, GroupedSoftmaxRouter, Groups, Router, SigmoidRouter, SoftmaxRouter, TopKRouter
from memcalc.specs.model import Weight
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.matmul import cast_weight
from memcalc.tape.functional.pointwise import masked_fill
from memcalc.tape.tensor import Axis, Shape, Tensor


class Choice(NamedTuple):
    """What a router returns, all of it held by its caller.

    Attributes:
        logits: (tokens, experts); only the auxiliary loss wants them.
        weights: (tokens, top_k).
        indices: (tokens, top_k), int64.
        loss: what the choice adds to the model's loss.
    """

    logits: Tensor
    weights: Tensor
    indices: Tensor
    loss: Tensor | None = None


def route(ctx: Context, m: Router, x: Tensor) -> Choice:
    """Run a router, under its name, on x (tokens, hidden)."""
    with ctx.inside(m.module_name):
        choice = choose(m, ctx, ctx.entered(x))
        return choice._replace(weights=ctx.left(choice.weights))


@singledispatch
def choose(m: Router, ctx: Context, x: Tensor) -> Choice:
    """The choice of one kind of router."""
    raise NotImplementedError(type(m).__name__)


def logits_of(ctx: Context, m: Router, x: Tensor) -> Tensor:
    """The product with the router's weight; in float32 of a copy of x, which is saved, and of one of the weight where an engine has cast that."""
    weights = list(m.own_weights())[: 1 + m.bias]
    if m.dtype is not None:
        x = F.cast(x, m.dtype, f"{m.dtype} copy for the router")
    params = [cast_weight(merged_weight(ctx, m, w), ctx.weight_path(w)) for w in weights]
    if m.dtype is not None and ctx.tape.autocast is None:
        params = [F.cast(p, m.dtype, f"{m.dtype} copy of the router's weight") for p in params]
    return F.linear(x, params[0], params[1] if m.bias else None, m.experts, "router logits")


def merged_weight(ctx: Context, m: Router, weight: Weight) -> Tensor:
    """A weight of the router, with its adapter's product added where it has one, tried out before (ParamWrapper.get_delta_weight)."""
    param = ctx.parameter(weight)
    adapter = next((a for a in m.adapters if a.parameter == weight.name), None)
    if adapter is None:
        return param
    with ctx.inside(adapter.module_name):
        a, b = (ctx.parameter(w) for w in adapter.own_weights())
        delta = F.scale(F.matmul(b, a, param.shape, "product of factors"), "scaled product")
        delta = F.cast(delta, param.dtype, "product in the weight's dtype")
        F.like(delta, "merged weight, tried out")
        return F.add(delta, param, "merged weight")


def top_k_axis(m: Router) -> Axis:
    """How many experts each token has."""
    return Axis("top_k", m.top_k)


@choose.register
def softmax_router(m: SoftmaxRouter, ctx: Context, x: Tensor) -> Choice:
    """Softmax in float32, top-k (MixtralTopKRouter, Qwen3MoeTopKRouter, DeepseekV2TopkRouter, HunYuanMoEV1Gate)."""
    logits = logits_of(ctx, m, x)
    scores = F.softmax(logits, "float32" if m.wide else None, "router probabilities")
    if m.groups is not None:
        with ctx.tape.no_grad():
            best, _which = routing.topk(F.view(scores, grouped(m, m.groups, x)), Axis("1", 1), "best of each group")
            held = unchosen(ctx, m, m.groups, F.view(best, best.shape[:2]))
        scores = masked_fill(scores, held[-1], "scores of chosen groups")
    weights, indices = routing.topk(scores, top_k_axis(m))
    del scores
    if m.normalise:
        weights = routing.div(weights, routing.sum_over(weights, 1, "sum of chosen scores", keep=True), in_place=m.in_place)
    if m.scaled:
        weights = F.scale(weights, "scaled scores")
    if m.cast_back:
        weights = F.cast(weights, logits.dtype, "scores in the logits' dtype")
    return Choice(logits, weights, indices)


@choose.register
def top_k_router(m: TopKRouter, ctx: Context, x: Tensor) -> Choice:
    """Top-k of the logits, softmax over those (GptOssTopKRouter, GraniteMoeTopKRouter)."""
    logits = logits_of(ctx, m, x)
    if m.wide:
        logits = F.cast(logits, "float32", "router logits in fp32")
    best, indices = routing.topk(logits, top_k_axis(m))
    weights = F.softmax(best, name="scores")
    if m.wide:
        weights = F.cast(weights, x.dtype, "scores in the model's dtype")
    return Choice(logits, weights, indices)


@choose.register
def sigmoid_router(m: SigmoidRouter, ctx: Context, x: Tensor) -> Choice:
    """Sigmoid, choice by corrected scores, weights by the uncorrected ones (DeepseekV3TopkRouter, MiniMaxM2TopKRouter, Lfm2MoeTopKRouter)."""
    logits = logits_of(ctx, m, x)
    scores = F.keeps_result(F.cast(logits, "float32") if m.wide else logits, "router scores")
    with ctx.tape.no_grad():
        indices, *_held = best_of(ctx, m, F.add_scalar(scores, "corrected scores"), m.groups)
    weights = routing.gather(scores, indices, "scores of the chosen")
    if m.normalise:
        weights = normalised(weights, eps=m.eps, in_place=m.in_place)
    if m.scaled:
        weights = F.scale(weights, "scaled scores")
    return Choice(logits, weights, indices)


@choose.register
def grouped_softmax_router(m: GroupedSoftmaxRouter, ctx: Context, x: Tensor) -> Choice:
    """Softmax, the best within chosen groups (Mistral4TopkRouter)."""
    logits = logits_of(ctx, m, x)
    scores = F.softmax(logits, name="router scores")
    with ctx.tape.no_grad():
        indices, *_held = best_of(ctx, m, scores, m.groups)
    weights = routing.gather(scores, indices, "scores of the chosen")
    if m.normalise:
        weights = normalised(weights, eps=True, in_place=True)
    return Choice(logits, F.scale(weights, "scaled scores"), indices)


def best_of(ctx: Context, m: Router, scores: Tensor, groups: Groups | None) -> tuple[Tensor, ...]:
    """The experts with the best scores, of the groups whose best two sum up highest, and what is held beside them as long as the router runs."""
    if groups is None:
        chosen, indices = routing.topk(scores, top_k_axis(m))
        return indices, scores, chosen
    best, _which = routing.topk(F.view(scores, grouped(m, groups, scores)), Axis("2", 2), "best two of each group")
    sums = routing.sum_over(best, 2, "group scores")
    del best
    held = unchosen(ctx, m, groups, sums)
    rest = F.like(scores, "scores of chosen groups")
    del scores
    return routing.topk(rest, top_k_axis(m))[1], rest, sums, *held


def normalised(weights: Tensor, *, eps: bool, in_place: bool) -> Tensor:
    """Weights over their sum, to which a constant is added where `eps` says so."""
    total = routing.sum_over(weights, 1, "sum of chosen scores", keep=True)
    if eps:
        total = F.add_scalar(total, "sum of chosen scores + eps")
    return routing.div(weights, total, in_place=in_place)


@choose.register
def corrected_softmax_router(m: CorrectedSoftmaxRouter, ctx: Context, x: Tensor) -> Choice:
    """All in float32, whatever autocast says; choice by corrected scores (Ernie4_5_MoeTopKRouter)."""
    autocast, ctx.tape.autocast = ctx.tape.autocast, None
    logits = logits_of(ctx, m, x)
    scores = F.softmax(logits, "float32", "router probabilities")
    with ctx.tape.no_grad():
        _dropped, indices = routing.topk(F.add_scalar(scores, "corrected scores"), top_k_axis(m))
    weights = routing.gather(scores, indices, "scores of the chosen")
    weights = routing.div(weights, routing.clamp(routing.sum_over(weights, 1, "sum of chosen scores", keep=True), "sum of chosen scores, at least", bounds=1))
    weights = F.cast(weights, x.dtype, "scores in the model's dtype")
    ctx.tape.autocast = autocast
    return Choice(logits, weights, indices)


def grouped(m: Router, groups: Groups, x: Tensor) -> Shape:
    """Scores by group: (tokens, groups, experts of a group)."""
    return (x.shape[0], Axis("groups", groups.count), Axis("experts per group", m.experts.size // groups.count))


def unchosen(ctx: Context, m: Router, groups: Groups, scores: Tensor) -> tuple[Tensor, ...]:
    """The mask of experts outside the chosen groups, last, after what is made on the way and held as long.

    The real code lets it all go where the router returns, or keeps the mask for backward.
    """
    which = routing.topk(scores, Axis("chosen groups", groups.chosen), "chosen groups")[1]
    flags = F.like(scores, "flags of groups")
    wide = ctx.tape.new(grouped(m, groups, scores), scores.dtype, "flags of experts")
    chosen = ctx.tape.new((scores.shape[0], m.experts), "bool", "chosen")
    inverted = F.like(chosen, "not chosen")
    return which, flags, wide, inverted
