"""What code that comes with a model does in its own way: DeepSeek v1's router, and the end of models written before transformers 4.45."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.router import Choice, choose, logits_of, top_k_axis
from memcalc.components.looped import BalancedRouter, RemoteHead
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.shape import narrow
from memcalc.tape.tensor import Tensor


@choose.register
def balanced_router(m: BalancedRouter, ctx: Context, x: Tensor) -> Choice:
    """Softmax in the model's dtype, top-k, in training the loss for uneven choices (MoEGate.forward)."""
    logits = logits_of(ctx, m, x)
    scores = F.softmax(logits, None, "router probabilities")
    weights, indices = routing.topk(scores, top_k_axis(m))
    if m.normalise:
        total = F.add_scalar(routing.sum_over(weights, 1, "sum of chosen scores", keep=True), "sum + epsilon")
        weights = routing.div(weights, total)
    loss = uneven(ctx, m, scores, indices) if m.balance != "nothing" and ctx.settings.records else None
    return Choice(logits, weights, indices, loss)


def uneven(ctx: Context, m: BalancedRouter, scores: Tensor, indices: Tensor) -> Tensor:
    """The loss. It saves how often each expert was chosen; its gradient is as large as the scores."""
    new, sequences = ctx.tape.new, Axis("sequences", ctx.batch.size if m.balance == "sequence" else 1)
    counts = new((sequences, m.experts), "float32", "how often chosen")
    if m.balance == "sequence":
        new(indices.shape, "float32", "ones")
    else:
        held = new((*indices.shape, m.experts), "int64", "one-hot choices")
        new(held.shape, "float32", "one-hot choices in fp32")
    loss = new((), "float32", "loss for uneven choices")
    shape, dtype = scores.shape, scores.dtype
    ctx.tape.record(loss, (scores,), (counts,), lambda wants, g, counts: (g.tape.new(shape, dtype, "gradient of uneven choices"),))
    return loss


@runs(RemoteHead)
def remote_head(ctx: Context, m: RemoteHead, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, or in inference the logits of all tokens (DeepseekForCausalLM.forward, MiniCPMForCausalLM.forward)."""
    logits = ctx.run(m.proj, F.scale(x, "scaled hidden states") if m.scaled_input else x)
    wide = F.cast(logits, "float32", "logits in fp32")
    del logits
    if not ctx.settings.training:
        return wide
    ctx.shared["logits"] = wide
    # Of one sequence, all tokens but the last are a contiguous view already; of several, a copy.
    copied, shorter = Axis("batch", ctx.batch.size * (ctx.batch.size > 1)), Axis("seq_len - 1", ctx.seq.size - 1)
    shifted = narrow(wide, (ctx.batch, shorter, wide.shape[-1]))
    copy = ctx.tape.new((copied, *shifted.shape[1:]), "float32", "shifted logits")
    target = ctx.tape.new((copied, shorter), "int64", "shifted labels")
    loss = F.nll_loss(F.log_softmax(shifted), target)
    del copy
    return loss
