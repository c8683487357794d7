"""How tokens get to the ranks of their experts, and back.

Sources: megatron/core/transformer/moe/token_dispatcher.py (MoEAlltoAllTokenDispatcher, MoEAllGatherTokenDispatcher) and moe_utils.py
(permute, unpermute, sort_chunks_by_idxs); transformer_engine/pytorch/permutation.py and triton/permutation.py.
"""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context
from memcalc.code.megatron.options import options
from memcalc.components.moe import MoE
from memcalc.formulas.experts import rows as share_of
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


class AllToAll:
    """Each rank sends the rows of every expert to its owner, which sorts what it got by its own experts.

    The scores, the choice and the order stay with it until its layer runs again.
    """

    def __init__(self, ctx: Context, m: MoE) -> None:
        self.ctx, self.m = ctx, m
        self.kept: list[Tensor] = []
        s = ctx.settings
        self.spreads = not (isinstance(s.ep, int) and s.ep == 1)
        self.splits = not (isinstance(s.etp, int) and s.etp == 1)
        self.sorts = not (isinstance(s.ep, int) and s.ep == m.experts.count.size)

    def permute(self, x: Tensor, probs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """x (tokens, hidden) → a row for each token and chosen expert, by expert, and their scores."""
        self.tokens, settings = x.shape[0], self.ctx.settings
        copies = self.tokens.size * self.m.gate.top_k
        self.sent, self.got = (
            Axis("tokens * top_k", share_of(copies, settings.sent)),
            Axis("tokens * top_k from all ranks", share_of(copies, settings.received)),
        )
        if not self.spreads:
            self.got = self.sent
        rows, scores, index = permute(self.ctx, x, probs, chosen, self.sent)
        self.kept = [probs, chosen, index]
        return rows, scores

    def send(self, rows: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """What this rank's experts get."""
        return (exchange(rows, self.got, "rows received"), exchange(scores, self.got, "scores received")) if self.spreads else (rows, scores)

    def sort(self, rows: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """By expert; of the whole group where experts are cut."""
        if self.splits:
            whole = Axis(f"{self.got.name} * etp", self.got.size * self.ctx.settings.etp)
            rows, scores = gather(rows, whole, "rows of the group"), gather(scores, whole, "scores of the group")
        return (reorder(self.ctx, rows, "rows by expert"), reorder(self.ctx, scores, "scores by expert")) if self.sorts else (rows, scores)

    def unsort(self, rows: Tensor) -> Tensor:
        """What the experts say, in the order that rows came in."""
        if self.sorts:
            rows = reorder(self.ctx, rows, "rows by rank")
        if self.splits:
            dtype = rows.dtype
            rows = F.cast(scatter(F.cast(rows, self.kept[0].dtype), self.got, "rows / etp"), dtype)
        return rows

    def give_back(self, rows: Tensor) -> Tensor:
        """What other ranks' experts say of this rank's tokens."""
        return exchange(rows, self.sent, "rows returned") if self.spreads else rows

    def unpermute(self, rows: Tensor) -> Tensor:
        """(tokens, hidden)."""
        return unpermute(rows, self.kept[2], self.tokens)


class AllGather:
    """Every rank of the expert group gets all tokens, and picks those of its experts. The scores of its rows and their order stay with it."""

    def __init__(self, ctx: Context, m: MoE) -> None:
        self.ctx, self.m = ctx, m
        self.kept: list[Tensor] = []
        self.group: Any = ctx.settings.ep * ctx.settings.etp
        self.alone = isinstance(self.group, int) and self.group == 1

    def permute(self, x: Tensor, probs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """x (tokens, hidden) and scores as they are."""
        self.tokens, self.kept = x.shape[0], [chosen]
        self.everyone = Axis("tokens of the group", self.tokens.size * self.group)
        return x, probs

    def send(self, x: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the group."""
        if self.alone:
            return x, probs
        self.kept = [gather(self.kept[0], self.everyone, "chosen in the group")]
        return in_buffer(x, self.everyone), gather(probs, self.everyone, "scores of the group")

    def sort(self, x: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of this rank's experts, and their scores."""
        copies = self.tokens.size * self.m.gate.top_k * self.ctx.settings.etp
        rows, scores, index = permute(self.ctx, x, probs, self.kept[0], Axis("rows of this rank", share_of(copies, self.ctx.settings.received)))
        self.kept = [scores, index]
        return rows, scores

    def unsort(self, rows: Tensor) -> Tensor:
        """(tokens of the group, hidden)."""
        return unpermute(rows, self.kept[1], self.everyone)

    def give_back(self, x: Tensor) -> Tensor:
        """(tokens, hidden), summed over the group."""
        return x if self.alone else scatter(x, self.tokens, "output of experts / group")

    def unpermute(self, x: Tensor) -> Tensor:
        """That, in order already."""
        return x


DISPATCHERS: dict[str, type[AllToAll | AllGather]] = {"alltoall": AllToAll, "allgather": AllGather}


def permute(ctx: Context, x: Tensor, probs: Tensor, chosen: Tensor, rows: Axis) -> tuple[Tensor, Tensor, Tensor]:
    """Rows by expert, their scores, and which token each is of.

    Scores are selected out of the table, turned, by a mask, which saves both. Transformer Engine's kernel writes rows and scores at once, and
    keeps a map of (tokens, 2 * experts + 1) numbers.
    """
    tape, (tokens, experts), of_table, of_x = x.tape, chosen.shape, (probs.shape, probs.dtype), (x.shape, x.dtype)
    if options(ctx).permute_fusion:
        index = tape.new((tokens, Axis("2 * experts + 1", 2 * experts.size + 1)), "int32", "map of rows")
        out, scores = tape.new((rows, *x.shape[1:]), x.dtype, "rows sent"), tape.new((rows,), probs.dtype, "scores of rows")

        def back(wants: tuple[bool, ...], g: Tensor, of_scores: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
            return tape.new(*of_x, "gradient of tokens"), tape.new(*of_table, "gradient of scores by expert")

        tape.record((out, scores), (x, probs), (index,), back)
        return out, scores, index
    mask, index = tape.new((experts, tokens), "bool", "chosen tokens by expert"), tape.new((rows,), "int64", "token of each row")
    turned, scores = tape.new((experts, tokens), probs.dtype, "scores by expert, turned"), tape.new((rows,), probs.dtype, "scores of rows")
    tape.record(scores, (probs,), (turned, mask), lambda wants, g, *kept: (tape.new(*of_table, "gradient of scores by expert"),))
    del turned, mask
    out = tape.new((rows, *x.shape[1:]), x.dtype, "rows sent")
    tape.record(out, (x,), (index,), lambda wants, g, index: (tape.new(*of_x, "gradient of tokens"),))
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


def in_buffer(x: Tensor, rows: Axis) -> Tensor:
    """Tokens of a group in the global buffer, which is resident; gradients come back in it, too (mappings.py, use_global_buffer)."""
    out, back = Tensor(x.tape, (rows, *x.shape[1:]), x.dtype, None), x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (Tensor(g.tape, back, g.dtype, None),))
    return out


def scatter(x: Tensor, rows: Axis, name: str) -> Tensor:
    """A sum over ranks, of which this one keeps its rows."""
    return gather(x, rows, name)


def reorder(ctx: Context, x: Tensor, name: str) -> Tensor:
    """Chunks in another order: a copy, both ways. The fused kernel keeps where each row goes."""
    out = like(x, name)
    saves = (x.tape.new((x.shape[0],), "int32", f"places of {name}"),) if options(ctx).permute_fusion else ()
    x.tape.record(out, (x,), saves, lambda wants, g, *kept: (like(g, f"gradient of {name}"),))
    return out
