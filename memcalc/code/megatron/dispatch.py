"""How tokens get to the ranks of their experts, and back.

Source: megatron/core/transformer/moe/token_dispatcher.py (MoEAlltoAllTokenDispatcher, MoEAllGatherTokenDispatcher) and moe_utils.py
(permute, unpermute, sort_chunks_by_idxs), without fused permutation.
"""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context
from memcalc.components.moe import MoE
from memcalc.formulas.experts import rows as share_of
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


class AllToAll:
    """Each rank sends the rows of every expert to its owner, which sorts what it got by its own experts."""

    def __init__(self, ctx: Context, m: MoE) -> None:
        self.ctx, self.m = ctx, m
        self.index: Tensor | None = None
        s = ctx.settings
        self.spreads = not (isinstance(s.ep, int) and s.ep == 1)
        self.splits = not (isinstance(s.etp, int) and s.etp == 1)
        self.sorts = not (isinstance(s.ep, int) and s.ep == m.experts.count.size)

    def dispatch(self, x: Tensor, probs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """x (tokens, hidden) → the rows of this rank's experts, sorted by expert, and their scores."""
        self.tokens = x.shape[0]
        settings = self.ctx.settings
        copies = self.tokens.size * self.m.gate.top_k
        sent, got = Axis("tokens * top_k", share_of(copies, settings.sent)), Axis("tokens * top_k from all ranks", share_of(copies, settings.received))
        if not self.spreads:
            got = sent
        rows, scores, self.index = permute(x, probs, chosen, sent)
        self.probs_dtype = probs.dtype
        del x, probs, chosen
        if self.spreads:
            rows, scores = exchange(rows, got, "rows received"), exchange(scores, got, "scores received")
        if self.splits:
            whole = Axis(f"{got.name} * etp", got.size * settings.etp)
            rows, scores = gather(rows, whole, "rows of the group"), gather(scores, whole, "scores of the group")
        if self.sorts:
            rows, scores = reorder(rows, "rows by expert"), reorder(scores, "scores by expert")
        self.sent, self.got = sent, got
        return rows, scores

    def combine(self, rows: Tensor) -> Tensor:
        """What the experts say → (tokens, hidden)."""
        if self.sorts:
            rows = reorder(rows, "rows by rank")
        if self.splits:
            dtype = rows.dtype
            rows = F.cast(scatter(F.cast(rows, self.probs_dtype), self.got, "rows / etp"), dtype)
        if self.spreads:
            rows = exchange(rows, self.sent, "rows returned")
        assert self.index is not None
        index, self.index = self.index, None
        return unpermute(rows, index, self.tokens)


class AllGather:
    """Every rank of the expert group gets all tokens, and picks those of its experts."""

    def __init__(self, ctx: Context, m: MoE) -> None:
        self.ctx, self.m = ctx, m
        self.index: Tensor | None = None
        settings = ctx.settings
        self.group: Any = settings.ep * settings.etp

    def dispatch(self, x: Tensor, probs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """x (tokens, hidden) → the rows of this rank's experts, and their scores."""
        self.tokens = x.shape[0]
        self.everyone = Axis("tokens of the group", self.tokens.size * self.group)
        if not (isinstance(self.group, int) and self.group == 1):
            x, probs, chosen = (
                gather(t, self.everyone, n) for t, n in ((x, "tokens of the group"), (probs, "scores of the group"), (chosen, "chosen in the group"))
            )
        copies = self.tokens.size * self.m.gate.top_k * self.ctx.settings.etp
        rows, scores, self.index = permute(x, probs, chosen, Axis("rows of this rank", share_of(copies, self.ctx.settings.received)))
        return rows, scores

    def combine(self, rows: Tensor) -> Tensor:
        """What the experts say → (tokens, hidden)."""
        assert self.index is not None
        index, self.index = self.index, None
        out = unpermute(rows, index, self.everyone)
        del rows, index
        return out if isinstance(self.group, int) and self.group == 1 else scatter(out, self.tokens, "output of experts / group")


DISPATCHERS: dict[str, type[AllToAll | AllGather]] = {"alltoall": AllToAll, "allgather": AllGather}


def permute(x: Tensor, probs: Tensor, chosen: Tensor, rows: Axis) -> tuple[Tensor, Tensor, Tensor]:
    """Rows by expert, their scores, and which token each is of.

    The order comes from sorting the whole table of (experts, tokens), whose int64 indices the scores' selection saves.
    """
    tape, (tokens, experts) = x.tape, chosen.shape
    cells = Axis("experts * tokens", experts.size * tokens.size)
    by_expert = tape.new((experts, tokens), "bool", "chosen tokens by expert")
    order = tape.new((cells,), "int64", "order of all cells")
    index = tape.new((rows,), "int64", "token of each row")
    del by_expert
    turned = like(probs, "scores by expert, turned")
    scores = tape.new((rows,), probs.dtype, "scores of rows")
    back, dtype = probs.shape, probs.dtype
    tape.record(scores, (probs,), (order,), lambda wants, g, order: (tape.new(back, dtype, "gradient of scores by expert"),))
    del turned, order
    out = tape.new((rows, *x.shape[1:]), x.dtype, "rows sent")
    whole = x.shape
    tape.record(out, (x,), (index,), lambda wants, g, index: (tape.new(whole, g.dtype, "gradient of tokens"),))
    return out, scores, index


def unpermute(rows: Tensor, index: Tensor, tokens: Axis) -> Tensor:
    """Rows added up by token, into zeros. Saves the index."""
    out = rows.tape.new((tokens, *rows.shape[1:]), rows.dtype, "output of experts")
    back = rows.shape
    rows.tape.record(out, (rows,), (index,), lambda wants, g, index: (g.tape.new(back, g.dtype, "gradient of rows"),))
    return out


def exchange(x: Tensor, rows: Axis, name: str) -> Tensor:
    """An all-to-all: as many rows as come in. Saves nothing."""
    return gather(x, rows, name)


def gather(x: Tensor, rows: Axis, name: str) -> Tensor:
    """Another number of rows, by a collective that saves nothing."""
    out, back = x.tape.new((rows, *x.shape[1:]), x.dtype, name), x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(back, g.dtype, f"gradient of {name}"),))
    return out


def scatter(x: Tensor, rows: Axis, name: str) -> Tensor:
    """A sum over ranks, of which this one keeps its rows."""
    return gather(x, rows, name)


def reorder(x: Tensor, name: str) -> Tensor:
    """Chunks in another order: a copy, both ways."""
    out = like(x, name)
    x.tape.record(out, (x,), (), lambda wants, g: (like(g, f"gradient of {name}"),))
    return out
