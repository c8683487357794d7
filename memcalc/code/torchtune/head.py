"""The end of the model and the recipe's losses: on whole logits, on logits in pieces of the sequence, or on logits that are made piece by piece."""

from __future__ import annotations

from collections.abc import Callable

from memcalc.code.context import Context, runs
from memcalc.code.release import let_go
from memcalc.code.torchtune import compiled
from memcalc.code.torchtune.capped import capped_states
from memcalc.components import Head
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.routing import index_rows
from memcalc.tape.tensor import Tensor

NUM_PIECES = 8
"""``num_output_chunks`` of both losses, as all of torchtune's configurations have it."""


@runs(Head)
def output(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss (TransformerDecoder.unembed, and the recipe's _loss_step)."""
    with ctx.tape.on_card():  # hooks that send saved tensors to the host are around the layers alone
        return LOSSES[ctx.settings.loss](ctx, m, x if m.softcap is None else capped_states(x))


def cross_entropy(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """``nn.CrossEntropyLoss`` of all logits in fp32, which the recipe lets go of before backward."""
    begin = len(ctx.tape.nodes)
    logits = F.cast(logits_of(ctx, m, x), "float32", "logits in fp32")
    let_go(x, begin)
    ctx.shared["logits"] = logits
    return loss_of(ctx, logits, Tensor(ctx.tape, (ctx.batch, ctx.seq), "int64", None))


def logits_of(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """Hidden states through the output layer."""
    return ctx.run(m.proj, x)


def loss_of(ctx: Context, logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy in fp32."""
    if compiled.is_compiled(ctx):
        return compiled.loss_of(logits, labels)
    return F.nll_loss(F.log_softmax(F.cast(logits, "float32", "logits in fp32")), labels)


def chunked_output(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """Logits of all pieces in the model's dtype, then each in fp32 for its loss (CEWithChunkedOutputLoss). Pieces of several sequences are copied."""
    several = not ctx.has_one_sequence
    begin = len(ctx.tape.nodes)
    parts = [F.narrow(x, (ctx.batch, rows, x.shape[-1])) for rows in pieces(Axis("seq_len", ctx.seq.size))]
    logits = [logits_of(ctx, m, F.clone(part, "piece of hidden states") if several else part) for part in parts]
    parts.clear()
    let_go(x, begin)
    labels = [ctx.tape.new((Axis("batch", ctx.batch.size * several), piece.shape[1]), "int64", "labels of a piece") for piece in logits]
    loss: Tensor | None = None
    for piece, target in zip(logits, labels, strict=True):
        one = loss_of(ctx, piece, target)
        loss = one if loss is None else F.add(loss, one, "loss so far")
    assert loss is not None
    return loss


def linear_cross_entropy(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """Of tokens with a label alone, counted as all but the last of each sequence; logits of a piece go when its loss is there (LinearCrossEntropyLoss)."""
    tokens = Axis("batch * (seq_len - 1)", ctx.batch.size * (ctx.seq.size - 1))
    flat = F.view(x, (Axis("batch * seq_len", ctx.batch.size * ctx.seq.size), x.shape[-1]))
    labelled = index_rows(flat, ctx.tape.new((tokens,), "int64", "places of labelled tokens"), tokens, "hidden states of labelled tokens")
    labels = ctx.tape.new((tokens,), "int64", "labels")
    parts = [F.narrow(labelled, (rows, x.shape[-1])) for rows in pieces(tokens)]
    del labelled
    loss: Tensor | None = None
    for part in parts:
        one = loss_of_piece(ctx, m, part, labels)
        loss = one if loss is None else F.add(loss, one, "loss so far")
    assert loss is not None
    return loss


def loss_of_piece(ctx: Context, m: Head, x: Tensor, labels: Tensor) -> Tensor:
    """compute_cross_entropy: logits in both precisions until its loss is there."""
    logits = logits_of(ctx, m, x)
    return loss_of(ctx, logits, labels)


def pieces(whole: Axis) -> list[Axis]:
    """``tensor_split``: the first ones are longer by one where they do not divide."""
    return [Axis(f"{whole.name} / {NUM_PIECES}", (whole.size + NUM_PIECES - 1 - i) // NUM_PIECES) for i in range(NUM_PIECES)]


LOSSES: dict[str, Callable[[Context, Head, Tensor], Tensor]] = {
    "cross_entropy": cross_entropy,
    "chunked_output": chunked_output,
    "linear_cross_entropy": linear_cross_entropy,
}
"""By the name of the run key."""
