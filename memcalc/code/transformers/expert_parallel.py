"""Expert parallelism: rows of tokens go to the ranks of their experts, and what those answer comes back (AllToAllEP).

A rank gets as many rows as it sends, times its share (``expert_imbalance``); ranks of a group hold different tokens.
Source: transformers, distributed/expert_parallel.py. The sums take the dtype of the layer's input again, as FSDP's mixed precision has it,
though the code leaves them in that of the routing weights.
"""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.errors import InputError
from memcalc.formulas.experts import rows as share_of
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.collective import all_to_all
from memcalc.tape.tensor import Axis, Tensor


def is_spread(ctx: Context) -> bool:
    """Whether experts are on several ranks."""
    return not (isinstance(ctx.settings.ep, int) and ctx.settings.ep == 1)


def refuse_spread(ctx: Context) -> None:
    """Nothing, where all experts are on every rank.

    Raises:
        InputError: they are not, and the model's code has no plan for that (``base_model_ep_plan``).
    """
    if is_spread(ctx):
        raise InputError("this model's own code cannot spread its experts over ranks; ep can be 1 with code: transformers", where="sharding.ep")


class Exchange:
    """One exchange of rows, there and back.

    Args:
        ctx: the run.
        x: (tokens, hidden), this rank's.
        weights, indices: (tokens, top_k).
    """

    def __init__(self, ctx: Context, x: Tensor, weights: Tensor, indices: Tensor) -> None:
        self.ctx, self.weights, self.dtype = ctx, weights, x.dtype
        (self.tokens, self.top_k), self.hidden = indices.shape, x.shape[-1]
        self.sent = Axis("tokens * top_k", self.tokens.size * self.top_k.size)
        self.received = Axis("rows of this rank's experts", share_of(self.sent.size, ctx.settings.received))
        self.order = ctx.tape.new((self.sent,), "int64", "order by rank")

    def dispatch(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows for this rank's experts, a weight of one for each, and the expert's id (AllToAllEP._dispatch_tokens)."""
        new, one = self.ctx.tape.new, Axis("1", 1)
        sent = routing.index_rows(x, new((self.sent,), "int64", "token of each row"), self.sent, "rows to send")
        rows = all_to_all(sent, self.received, "rows received")
        ids = new((self.received, one), "int64", "expert of each row")
        return rows, new((self.received, one), rows.dtype, "ones"), ids

    def combine(self, answers: Tensor) -> Tensor:
        """(tokens, hidden): answers on the ranks whose tokens they are for, weighted and summed (AllToAllEP._combine_tokens)."""
        back = all_to_all(answers, self.sent, "answers")
        placed = routing.place_rows(back, self.order, "answers in order")
        whole = F.view(placed, (self.tokens, self.top_k, self.hidden))
        weighted = F.mul(whole, F.view(self.weights, (self.tokens, self.top_k, Axis("1", 1))), "weighted answers")
        del placed, whole
        total = routing.sum_over(weighted, 1, "sum over experts")
        del weighted, back
        return F.cast(total, self.dtype, "output of experts")
