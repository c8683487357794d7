"""Mixtures of experts: rows sorted by expert and padded to groups of eight, one grouped product for each of three stacked weights.

Sources: torchtitan 0.2.2, models/moe/moe.py and models/moe/utils.py; distributed/expert_parallel.py, ExpertParallel. The padded length follows
from the number of rows alone, so nothing is assumed of the routing.
"""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.linear import product
from memcalc.code.torchtitan.selection import output
from memcalc.components.grouped import GroupedExperts
from memcalc.components.moe import Groups, MoE, Router, SigmoidRouter, SoftmaxRouter
from memcalc.formulas.experts import rows as share_of
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.pointwise import masked_fill
from memcalc.tape.tensor import Tensor

ALIGNED = 8
"""Rows of an expert are padded to a multiple of it (TOKEN_GROUP_ALIGN_SIZE_M, of bf16)."""
ONE = Axis("1", 1)


@runs(MoE)
def moe(ctx: Context, m: MoE, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MoE.forward with ``score_before_experts`` off, as DeepSeek-V3 and Qwen3 have it).

    All that it makes on the way stays until it is through.
    """
    whole = x.shape
    tokens, top_k, hidden = Axis("tokens", ctx.batch.size * ctx.seq.size), Axis("top_k", m.gate.top_k), x.shape[-1]
    rows = Axis("tokens * top_k", tokens.size * top_k.size)
    x = F.view(x, (tokens, hidden))
    with ctx.inside(m.gate.module_name):
        scores, indices = route(ctx, m.gate, x)
    held = [ctx.tape.new((m.experts.count,), "int64", "rows per expert") for _ in range(2)]
    order = F.like(ctx.tape.new((rows,), "int64", "sorted expert ids"), "order")
    held.append(routing.index_rows(F.view(scores, (rows,)), order, rows, "scores by expert"))
    routed = routing.index_rows(x, ctx.tape.new((rows,), "int64", "token of each row"), rows, "rows by expert")
    del held[0]
    assert isinstance(m.experts, GroupedExperts)
    with ctx.inside("experts"):
        answers = spread(ctx, m.experts, routed)
    out = None if m.shared is None else ctx.run(m.shared, x, m.shared_name)
    placed = put(answers, order, (rows, hidden), "answers by token")
    each = F.view(placed, (tokens, top_k, hidden))
    weighed = weighted(F.view(scores, (tokens, ONE, top_k)), F.cast(each, "float32", "answers in fp32"))
    total = F.view(F.cast(weighed, x.dtype, "sum over experts"), (tokens, hidden))
    del weighed
    if out is not None:
        total, out = F.add(out, total, "experts + shared"), total
    del held, routed, answers, placed, each, indices, scores, order, out
    return F.view(total, whole)


def route(ctx: Context, m: Router, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (tokens, top_k) in fp32 and which experts they are of (TokenChoiceTopKRouter.forward)."""
    assert isinstance(m, (SoftmaxRouter, SigmoidRouter))
    logits = F.cast(product(ctx, x, [ctx.parameter(w) for w in m.own_weights()], m.experts, "router logits", again=True), "float32", "logits in fp32")
    scores = F.softmax(logits, name="router scores") if isinstance(m, SoftmaxRouter) else F.keeps_result(logits, "router scores")
    del logits
    with ctx.tape.no_grad():
        corrected = F.add_scalar(scores, "corrected scores")
        if m.groups is not None:
            corrected = limited(corrected, m.experts, m.groups)
        best, indices = routing.topk(corrected, Axis("top_k", m.top_k))
    chosen = routing.gather(scores, indices, "scores of the chosen")
    if m.normalise:
        total = routing.sum_over(chosen, 1, "sum of chosen scores", keep=True)
        chosen = routing.div(chosen, F.add_scalar(total, "sum of chosen scores + eps"))
        del total
    del best
    return F.scale(chosen, "scaled scores"), indices


def limited(scores: Tensor, experts: Axis, groups: Groups) -> Tensor:
    """Scores with those outside the chosen groups masked (TokenChoiceTopKRouter._get_node_limited_routing_scores)."""
    tokens, tape = scores.shape[0], scores.tape
    apart = F.view(scores, (tokens, Axis("groups", groups.count), Axis("experts per group", experts.size // groups.count)))
    best, _which = routing.topk(apart, Axis("2", 2), "best two of each group")
    sums = routing.sum_over(best, 2, "group scores")
    found = routing.topk(sums, Axis("chosen groups", groups.chosen), "chosen groups")
    mask = tape.new((*sums.shape, ONE), "bool", "groups not chosen")
    out = F.view(masked_fill(apart, mask, "scores of chosen groups"), scores.shape)
    del found
    return out


def spread(ctx: Context, m: GroupedExperts, x: Tensor) -> Tensor:
    """Rows to the ranks of their experts and back, where those are spread; else this rank's (ExpertParallel, indices_padding_wrapper)."""
    ep = ctx.settings.ep
    if isinstance(ep, int) and ep == 1:
        return padded(ctx, m, x)
    sent = x.shape[0]
    received = Axis("rows of this rank's experts", share_of(sent.size, ctx.settings.received))
    return exchanged(ctx, padded(ctx, m, exchanged(ctx, x, received, "rows received")), sent, "answers")


def exchanged(ctx: Context, x: Tensor, rows: Axis, name: str) -> Tensor:
    """``all_to_all_single_autograd``, whose output selective checkpoints keep."""
    out, back = output(ctx, (rows, *x.shape[1:]), x.dtype, name), x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(back, g.dtype, f"gradient of {name}, sent back"),))
    return out


def padded(ctx: Context, m: GroupedExperts, x: Tensor) -> Tensor:
    """x (rows, hidden) → the same, by way of groups that are padded (_permute, _run_experts_grouped_mm, _unpermute)."""
    tape, (rows, hidden) = ctx.tape, x.shape
    room = rows.size + int(m.count.size) // ctx.settings.ep * ALIGNED
    length = Axis("padded rows", (room + ALIGNED - 1) // ALIGNED * ALIGNED)
    indices = tape.new((length,), "int32", "row of each place")
    longer = appended(x)
    places = routing.index_rows(longer, indices, length, "padded rows by expert")
    del longer
    answers = experts(ctx, m, places)
    back = put(answers, indices, (Axis("rows + 1", rows.size + 1), hidden), "answers by row")
    del answers, places
    return without_last(back, rows)


def experts(ctx: Context, m: GroupedExperts, x: Tensor) -> Tensor:
    """Three grouped products in bf16, whatever the weights are held in."""
    offsets, dtype = ctx.tape.new((m.count,), "int32", "offsets"), x.dtype
    w1, w2, w3 = (F.cast(ctx.parameter(w), "bfloat16", "weight in bf16") for w in m.own_weights())
    x = F.cast(x, "bfloat16", "rows in bf16")
    y = apply_activation(routing.grouped_mm(x, w1, offsets, m.intermediate, "w1 of rows"), m.activation)
    y = F.mul(y, routing.grouped_mm(x, w3, offsets, m.intermediate, "w3 of rows"), "silu * w3")
    return F.cast(routing.grouped_mm(y, w2, offsets, m.hidden, "w2 of rows"), dtype, "answers in the model's dtype")


def appended(x: Tensor) -> Tensor:
    """``vstack((x, zeros))``: one row more; the gradient of the rest is a view."""
    tape, shape = x.tape, x.shape
    zeros = tape.new(shape[1:], x.dtype, "zeros")
    out = tape.new((Axis("rows + 1", shape[0].size + 1), *shape[1:]), x.dtype, "rows and one of zeros")
    del zeros
    tape.record(out, (x,), (), lambda wants, g: (Tensor(g.tape, shape, g.dtype, g.storage),))
    return out


def put(x: Tensor, index: Tensor, shape: tuple[Axis, ...], name: str) -> Tensor:
    """``out[index] = x`` of a tensor that nobody has a gradient for. Saves the index; backward picks rows."""
    out, rows = x.tape.new(shape, x.dtype, name), x.shape
    x.tape.record(out, (x,), (index,), lambda wants, g, index: (g.tape.new(rows, g.dtype, f"gradient of {name}"),))
    return out


def without_last(x: Tensor, rows: Axis) -> Tensor:
    """``x[:-1]``: a view; its gradient is copied into zeros of the whole."""
    out, whole = Tensor(x.tape, (rows, *x.shape[1:]), x.dtype, x.storage), x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(whole, g.dtype, "gradient of all rows"),))
    return out


def weighted(scores: Tensor, answers: Tensor) -> Tensor:
    """``bmm`` of scores (tokens, 1, top_k) and answers (tokens, top_k, hidden), in fp32. Saves both; the answers' gradient is made first."""
    tape = scores.tape
    out = tape.new((answers.shape[0], ONE, answers.shape[2]), "float32", "weighted sum in fp32")
    kinds = ((scores.shape, scores.dtype), (answers.shape, answers.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Any) -> tuple[Tensor | None, ...]:
        of_answers = tape.new(*kinds[1], "gradient of answers in fp32")
        return tape.new(*kinds[0], "gradient of scores") if wants[0] else None, of_answers

    tape.record(out, (scores, answers), (scores, answers), backward)
    return out
