"""Embeddings of texts, and the loss that tells each text's match from all other texts of the batch."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.contrastive import Contrastive
from memcalc.components.pooling import Pooling
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.tensor import Axis, Tensor


@runs(Pooling)
def pooling(ctx: Context, m: Pooling, x: Tensor) -> Tensor:
    """x (texts, seq, hidden) → loss (sentence_transformers/losses/MultipleNegativesRankingLoss.py, ``compute_loss_from_embeddings``).

    Under GradCache the loss has been found before, and each embedding is multiplied by its gradient (CachedMultipleNegativesRankingLoss.py).
    """
    pooled = POOLS[m.kind](ctx, x)
    del x
    if ctx.tape.autocast is not None:
        pooled = F.cast(pooled, "float32", "embeddings in fp32")
    asked = ctx.settings.contrastive
    return ranked(asked, pooled) if asked.mini_batch is None else multiplied(pooled)


def mean(ctx: Context, x: Tensor) -> Tensor:
    """The mean of a text's tokens: a mask as wide as the hidden states, and their product with it."""
    mask = ctx.tape.new(x.shape, x.dtype, "mask of tokens")
    vector = (x.shape[0], x.shape[-1])
    total = routing.sum_over(F.mul(x, mask, "masked hidden states"), 1, "sum of hidden states")
    count = ctx.tape.new(vector, x.dtype, "number of tokens")
    del mask
    return routing.div(F.view(total, vector), count)


def one(ctx: Context, x: Tensor) -> Tensor:
    """The hidden state of one token."""
    return F.index(x, (x.shape[0], x.shape[-1]), "hidden state of one token")


def ranked(asked: Contrastive, x: Tensor) -> Tensor:
    """Cosines of all anchors with all candidates, and cross-entropy over them."""
    texts, hidden = x.shape
    anchors, candidates = Axis("examples", asked.examples), Axis("candidates", asked.candidates)
    unit = [F.keeps_result(F.narrow(x, (axis, hidden)), name) for axis, name in ((anchors, "anchors"), (candidates, "candidates"))]
    del texts, x
    scores = F.scale(F.matmul(unit[0], unit[1], (anchors, candidates), "similarities"), "scaled similarities")
    labels = scores.tape.new((anchors,), "int64", "places of matches")
    loss = F.nll_loss(F.log_softmax(scores), labels)
    del unit
    return loss


def multiplied(x: Tensor) -> Tensor:
    """The sum of embeddings times their gradients."""
    out = x.tape.new((), x.dtype, "loss")
    F.like(x, "embeddings times gradients")
    grads = Tensor(x.tape, x.shape, x.dtype, None)
    x.tape.record(out, (x,), (grads,), lambda wants, g, grads: (F.like(grads, "gradient of embeddings"),))
    return out


POOLS = {"mean": mean, "cls": one, "last": one}
"""By the kind."""
