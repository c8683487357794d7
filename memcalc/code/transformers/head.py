"""The end of a language model: logits and loss."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers import liger
from memcalc.components import Head, MaskedHead
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.collective import all_gather_last
from memcalc.tape.span import minimum
from memcalc.tape.tensor import Tensor


@runs(Head)
def head(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, or in inference logits: of all tokens, or of the last so many (ForCausalLMLoss, logits_to_keep).

    The logits stay in ``ctx.shared`` until the caller lets go of them.
    """
    if ctx.settings.objective is not None:
        from memcalc.code.transformers.objectives import OBJECTIVES

        return OBJECTIVES[ctx.settings.objective.name](ctx, m, x)
    if not ctx.settings.training:
        return logits_of(ctx, m, _kept(ctx, x))
    if ctx.settings.loss != "cross_entropy":
        from memcalc.code.transformers.loss import LOSSES

        return LOSSES[ctx.settings.loss](ctx, m, x)
    x = _kept(ctx, x)
    length = x.shape[1].size
    logits = logits_of(ctx, m, x)
    del x
    ctx.shared["logits"] = logits
    wide = F.cast(logits, "float32", "logits in fp32") if ctx.settings.upcast_logits else logits
    # Of one sequence, the shifted labels are a contiguous view of the padded ones; of several, a copy.
    several = ctx.batch.size > 1
    padded = ctx.tape.new((Axis("batch", ctx.batch.size * several), Axis("seq_len + 1", length + 1)), "int64", "padded labels")
    target = ctx.tape.new((ctx.batch, Axis("seq_len", length + 1 - several)), "int64", "shifted labels")
    del logits
    loss = liger.cross_entropy(wide) if ctx.settings.liger.cross_entropy else F.nll_loss(F.log_softmax(wide), target)
    del padded, target
    return loss


def _kept(ctx: Context, x: Tensor) -> Tensor:
    """What the head is run on: x, or the last positions of each sequence. A product makes a copy of those of several sequences."""
    asked = ctx.settings.logits_to_keep
    if asked is None:
        asked = 0 if ctx.settings.training else 1
    if not asked:
        return x
    rows = Axis("logits_to_keep", minimum(asked, ctx.seq.size))
    last = F.narrow(x, (ctx.batch, rows, x.shape[-1]))
    alone = ctx.has_one_sequence or asked == 1
    return last if alone else F.clone(last, "hidden states of kept logits")


def logits_of(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, tokens, hidden) → logits (batch, tokens, vocabulary), scaled and capped as the model's forward does."""
    with ctx.tape.on_card():
        logits = ctx.run(m.proj, F.scale(x, "scaled hidden_states") if m.scaled_input else x)
    if ctx.has_tp and m.proj.split == "column":
        logits = all_gather_last(logits, m.proj.outputs)
    if m.scaled:
        logits = F.scale(logits, "scaled logits")
    if m.softcap is not None:
        logits = F.scale(logits, "logits / cap")
        logits = F.tanh(logits)
        logits = F.scale(logits, "capped logits")
    return logits


@runs(MaskedHead)
def masked_head(ctx: Context, m: MaskedHead, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss over all tokens, of the logits as they are or of an fp32 copy (BertForMaskedLM.forward, ForMaskedLMLoss)."""
    h = x
    if m.dense is not None and m.norm is not None:
        h = apply_activation(ctx.run(m.dense, x), m.activation)
        h = ctx.run(m.norm, h, "norm")
    logits = ctx.run(m.proj, h)
    del h
    if not ctx.settings.training:
        return logits
    ctx.shared["logits"] = logits
    labels = Tensor(ctx.tape, (ctx.batch, ctx.seq), "int64", None)  # the batch's own
    if m.upcast or ctx.settings.autocast is not None:  # autocast takes the loss in fp32 anyway
        logits = F.cast(logits, "float32", "logits in fp32")
    return F.nll_loss(F.log_softmax(logits), labels)
