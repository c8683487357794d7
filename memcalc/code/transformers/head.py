"""Both ends: embedding with the shared rotary angles and mask; head with logits and loss."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.mask import make_masks
from memcalc.components import Embedding, Head
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.collective import all_gather_last
from memcalc.tape.tensor import Tensor


@runs(Embedding)
def embed(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """ids (batch, seq) → (batch, seq, hidden); leaves angles and mask in ``ctx.shared`` (LlamaModel.forward)."""
    weights = list(m.own_weights())
    x = F.embedding(ids, ctx.parameter(weights[0], has_gradient=m.tied), m.width, "inputs_embeds")
    ctx.shared["position_ids"] = ctx.tape.new((ctx.seq,), "int64", "position_ids")
    make_masks(ctx, x.dtype)
    if m.rotary is not None:
        shape = (ctx.seq, Axis("head_dim", m.rotary.dim))
        with ctx.tape.no_grad():
            half = ctx.tape.new((ctx.seq, Axis("head_dim/2", m.rotary.dim // 2)), "float32", "angles")
            angles = ctx.tape.new(shape, "float32", "angles twice")
            cos = F.scale(ctx.tape.new(shape, "float32", "cos in fp32"))
            sin = F.scale(ctx.tape.new(shape, "float32", "sin in fp32"))
            ctx.shared["cos"] = F.cast(cos, x.dtype, "cos")
            ctx.shared["sin"] = F.cast(sin, x.dtype, "sin")
            del half, angles, cos, sin
    return x


@runs(Head)
def head(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, or in inference the logits of the last token. The logits stay in ``ctx.shared`` until the caller lets go
    of them (ForCausalLMLoss, logits_to_keep)."""
    if not ctx.settings.training:
        x = F.view(x, (ctx.batch, Axis("logits_to_keep", 1), x.shape[-1]))
    logits = ctx.run(m.proj, x)
    if ctx.has_tp and m.proj.split == "column":
        logits = all_gather_last(logits, m.proj.outputs)
    if not ctx.settings.training:
        return logits
    ctx.shared["logits"] = logits
    wide = F.cast(logits, "float32", "logits in fp32")
    padded = ctx.tape.new((ctx.batch, Axis("seq_len + 1", ctx.seq.size + 1)), "int64", "padded labels")
    target = ctx.tape.new((ctx.batch, ctx.seq), "int64", "shifted labels")
    del logits
    log_probs = F.log_softmax(wide)
    loss = F.nll_loss(log_probs, target)
    del padded
    return loss
