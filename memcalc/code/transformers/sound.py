"""Heads of models that hear."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.head import head, logits_of
from memcalc.components.sound import ShiftedHead, WholeHead
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(WholeHead)
def whole_head(ctx: Context, m: WholeHead, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, or logits of all tokens (Qwen2_5OmniThinkerForConditionalGeneration.forward)."""
    return head(ctx, m, x) if ctx.settings.training else logits_of(ctx, m, x)


@runs(ShiftedHead)
def shifted_head(ctx: Context, m: ShiftedHead, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, or logits of all tokens (Qwen2AudioForConditionalGeneration.forward); those of one sequence are not copied."""
    settings = ctx.settings
    if settings.objective is not None or not settings.training or settings.loss != "cross_entropy":
        return whole_head(ctx, m, x)
    logits = ctx.shared["logits"] = logits_of(ctx, m, x)
    tokens = Axis("seq_len - 1", ctx.seq.size - 1)
    shifted = F.narrow(logits, (ctx.batch, tokens, logits.shape[-1]))
    labels = Tensor(ctx.tape, (ctx.batch, tokens), "int64", None)  # of one sequence a view of the batch's
    if not ctx.has_one_sequence:
        shifted = F.clone(shifted, "shifted logits")
        labels = ctx.tape.new((ctx.batch, tokens), "int64", "shifted labels")
    del logits
    wide = F.cast(shifted, "float32" if settings.autocast else shifted.dtype, "logits in fp32")
    return F.nll_loss(F.log_softmax(wide), labels)
