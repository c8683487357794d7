"""Experts in a loop: each takes its rows, and its answer is added or put where they belong.

How many rows each expert gets depends on the data; an even share is assumed, the last expert taking what is left over. What is saved
grows with the rows of all experts together, so it does not depend on that; what one expert needs for a moment does.
"""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context, runs
from memcalc.code.transformers import remote  # noqa: F401 (it registers a router)
from memcalc.code.transformers.expert_parallel import refuse_spread
from memcalc.code.transformers.router import route
from memcalc.components.looped import LoopedMoE, ModuleMoE
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.pointwise import scale_in_place
from memcalc.tape.functional.shape import narrow
from memcalc.tape.tensor import Tensor


def shares(rows: Any, count: int) -> list[Any]:
    """Rows of each expert.

    >>> shares(10, 4)
    [2, 2, 2, 4]
    """
    each = rows // count
    return [each] * (count - 1) + [rows - each * (count - 1)]


@runs(LoopedMoE)
def looped_moe(ctx: Context, m: LoopedMoE, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (DbrxFFN.forward).

    Selecting an expert's weights is a view; going back, each expert's gradient is put into zeros as large as all of them, which are summed.
    """
    refuse_spread(ctx)
    tape, tokens, top_k, count = ctx.tape, Axis("tokens", ctx.batch.size * ctx.seq.size), m.gate.top_k, int(m.experts.count.size)
    flat = F.view(x, (tokens, x.shape[-1]))
    _logits, weights, indices, _loss = route(ctx, m.gate, flat)
    with ctx.inside("experts"):
        out = F.like(flat, "output of experts")
        hits = tape.new((tokens, Axis("top_k", top_k), Axis("experts + 1", count + 1)), "int64", "one-hot choices")
        stacked = [ctx.parameter(w) for w in m.experts.own_weights()]
        for rows in shares(tokens.size * top_k, count):
            chosen = Axis("tokens of expert", rows)
            where = tape.new((chosen, Axis("token and choice", 2)), "int64", "where it was chosen")
            up, gate, down = (narrow(w, w.shape[1:]) for w in (stacked[1], stacked[0], stacked[2]))
            mine = routing.index_rows(flat, where, chosen, "rows of expert")
            first = F.linear(mine, gate, None, gate.shape[0], "gate")
            second = F.linear(mine, up, None, up.shape[0], "up")
            first = apply_activation(first, m.experts.activation)
            product = F.mul(first, second, "gate * up")
            states = F.matmul(product, down, mine.shape, "answer of expert")
            del first, second, product, mine, up, gate, down
            states = F.mul(states, routing.pick(weights, where, (chosen, Axis("1", 1)), "scores of expert"), "weighted answer")
            out = routing.index_add(out, states, where)
    del where, states, hits, indices, weights, flat
    return F.view(out, x.shape)


@runs(ModuleMoE)
def module_moe(ctx: Context, m: ModuleMoE, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (DeepseekMoE.forward, of DeepSeek v1's own code)."""
    refuse_spread(ctx)
    flat = F.view(x, (Axis("tokens", ctx.batch.size * ctx.seq.size), x.shape[-1]))
    weights, _indices, loss = route(ctx, m.gate, flat)[1:]
    if ctx.settings.records:
        repeated = F.repeat(flat, (Axis("tokens * top_k", flat.shape[0].size * m.gate.top_k), x.shape[-1]), "tokens for each choice")
        out = masked_experts(ctx, m, repeated, weights)
        if loss is not None:
            out = routing.with_loss(out, loss)
    else:
        out = sorted_experts(ctx, m, flat, weights)
    out = F.view(out, x.shape)
    return out if m.shared_experts is None else F.add(out, ctx.run(m.shared_experts, x, "shared_experts"), "experts + shared")


def masked_experts(ctx: Context, m: ModuleMoE, x: Tensor, weights: Tensor) -> Tensor:
    """x (tokens * top_k, hidden) → (tokens, hidden): masks of bools take an expert's rows out and put its answers in."""
    (tokens, top_k), (rows, hidden) = weights.shape, x.shape
    out = F.like(x, "answers")
    for i, share in enumerate(shares(rows.size, len(m.experts))):
        taken = ctx.tape.new((rows,), "bool", "rows of expert")
        answer = ctx.run(m.experts[i], routing.index_rows(x, taken, Axis("rows of expert", share), "rows of expert"), f"experts/{i}")
        del taken
        out = routing.index_put(out, answer, ctx.tape.new((rows,), "bool", "where answers go"))
        del answer
    weighted = F.mul(F.view(out, (tokens, top_k, hidden)), F.view(weights, (tokens, top_k, Axis("1", 1))), "weighted answers")
    return routing.sum_over(weighted, 1, "sum over choices")


def sorted_experts(ctx: Context, m: ModuleMoE, x: Tensor, weights: Tensor) -> Tensor:
    """x (tokens, hidden) → the same, without gradients: choices are sorted by expert (DeepseekMoE.moe_infer)."""
    new, (tokens, top_k), hidden = ctx.tape.new, weights.shape, x.shape[-1]
    rows = Axis("tokens * top_k", tokens.size * top_k.size)
    out = F.like(x, "output of experts")
    order = new((rows,), "int64", "order by expert")
    of_tokens = new((rows,), "int64", "tokens by expert")
    for i, share in enumerate(shares(rows.size, len(m.experts))):
        chosen = Axis("rows of expert", share)
        mine = new((chosen, hidden), x.dtype, "rows of expert")
        answer = ctx.run(m.experts[i], mine, f"experts/{i}")
        scores = new((chosen, Axis("1", 1)), weights.dtype, "scores of expert")
        answer = scale_in_place(answer)
        del scores
        new((chosen, hidden), "int64", "where answers go")
    del order, of_tokens, mine, answer
    return out
