"""The end of the model and finetuning's loss, both in pieces of 128 tokens."""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context, runs
from memcalc.code.release import let_go
from memcalc.components import Head
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.scan import split_into
from memcalc.tape.span import maximum, minimum
from memcalc.tape.tensor import Tensor

PIECE = 128
"""``lm_head_chunk_size``."""


@runs(Head)
def lm_head(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss (GPT.forward; litgpt/utils.py, chunked_cross_entropy).

    What the model gives goes through Fabric, which casts it to fp32 (lightning/fabric/plugins/precision/half.py, ``convert_output``); the loop has
    a variable for that.
    """
    several = not ctx.has_one_sequence
    rows = pieces(ctx.seq.size)
    begin = len(ctx.tape.nodes)
    parts = split_into(x, [(ctx.batch, axis, x.shape[-1]) for axis in rows])
    logits = [ctx.run(m.proj, part) for part in parts]
    parts.clear()
    let_go(x, begin)
    narrow = logits
    logits = [F.cast(piece, "float32", "logits in fp32") for piece in narrow]
    narrow.clear()
    last = logits.pop()
    last = F.narrow(last, (ctx.batch, Axis("tokens of a piece", last.shape[1].size - 1), last.shape[-1]))
    ctx.outliving += [*logits, last]
    logits.append(F.clone(last, "last logits in order") if several else last)
    del last
    targets = [ctx.tape.new((Axis("batch", ctx.batch.size * several), piece.shape[1]), "int64", "targets of a piece") for piece in logits]
    loss: Tensor | None = None
    while logits:
        one = F.nll_loss(F.log_softmax(logits.pop(0)), targets.pop(0))
        loss = one if loss is None else F.add(loss, one, "loss so far")
        del one
    assert loss is not None
    return loss


def pieces(length: Any) -> list[Axis]:
    """As many as the longest sequence has; of a shorter one, in an array of lengths, the last ones are empty."""
    longest = length if isinstance(length, int) else int(length.max())
    return [Axis("tokens of a piece", minimum(PIECE, maximum(length - PIECE * i, 0))) for i in range(-(-longest // PIECE))]
