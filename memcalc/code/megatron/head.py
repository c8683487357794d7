"""The output layer and the vocabulary-parallel loss.

Sources: megatron/core/tensor_parallel/layers.py (ColumnParallelLinear) and cross_entropy.py; fusions/fused_cross_entropy.py;
models/gpt/gpt_model.py (_postprocess); models/common/language_module/language_module.py (compute_language_model_loss).
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import parallel
from memcalc.code.megatron.options import options
from memcalc.components import Head
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tape import Backward
from memcalc.tape.tensor import Tensor


@runs(Head)
def head(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden) → a loss for each token; the logits are local variables of the model's forward until it returns."""
    if ctx.settings.objective is not None:
        from memcalc.code.megatron.log_probs import OBJECTIVES

        if ctx.settings.objective.name in OBJECTIVES:
            return OBJECTIVES[ctx.settings.objective.name](ctx, m, x)
    logits = output_layer(ctx, m, x)
    if m.softcap is not None or m.scaled:
        logits = F.scale(logits, "scaled logits")
    labels = ctx.tape.new((ctx.seq, ctx.batch), "int64", "labels, sequence first")
    loss = cross_entropy(ctx, logits)
    final = ctx.tape.new((ctx.batch, ctx.seq), "float32", "losses")
    back = loss.shape
    ctx.tape.record(final, (loss,), (), lambda wants, g: (Tensor(g.tape, back, g.dtype, g.storage),))
    del labels, logits, loss
    return final


def output_layer(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """Logits of this rank's part of the vocabulary. Under sequence parallelism the gathered input stands in the global buffer, which is resident."""
    params = parallel.parameters(ctx, m.proj)
    rows = parallel.whole(ctx, x)
    logits = ctx.tape.new((*rows[:-1], params[0].shape[0]), x.dtype, "logits")
    part, dtype, scatters, fused = x.shape, x.dtype, parallel.is_split(ctx), options(ctx).fused_wgrad

    def backward(wants: tuple[bool, ...], g: Tensor, *kept: Tensor) -> tuple[Tensor | None, ...]:
        of_total = g.tape.new(rows, dtype, "gradient of gathered input of logits" if scatters else "gradient of input of logits")
        of_x = g.tape.new(part, dtype, "gradient of input of logits") if scatters else of_total
        return (of_x, *parallel.gradients(params, wants[1:], fused=fused))

    ctx.tape.record(logits, (x, *params), parallel.saved(x, params), backward)
    return logits


def cross_entropy(ctx: Context, logits: Tensor) -> Tensor:
    """A loss for each token, from every rank's part of the vocabulary.

    The logits are cast to fp32, and everything up to the probabilities happens in that copy, which is saved; backward turns it into the
    gradient in place, and the engine casts that to the logits' dtype. Of logits in fp32 no copy is made: all is their own storage.
    Transformer Engine's kernel keeps the logits' own storage in any case. What ``native`` fuses is compiled: its gradient takes ones off at the
    labels in a copy of the probabilities (Inductor's ``index_put``, which is not made in place), and is bf16 whatever the logits are.
    """
    tape, rows, dtype = ctx.tape, logits.shape[:-1], logits.dtype
    if options(ctx).cross_entropy == "te":
        out = tape.new(rows, "float32", "loss of each token")
        tape.record(out, (logits,), (logits,), lambda wants, g, logits: (Tensor(g.tape, logits.shape, dtype, logits.storage),))
        return out
    in_place = dtype == "float32"
    probs = Tensor(tape, logits.shape, dtype, logits.storage) if in_place else F.like(logits, "probabilities in fp32", "float32")
    largest = tape.new(rows, "float32", "largest logits")
    mask, target = tape.new(rows, "bool", "targets of other ranks"), tape.new(rows, "int64", "masked targets")
    predicted, total = tape.new(rows, "float32", "predicted logits"), tape.new(rows, "float32", "sum of exponentials")
    out = tape.new(rows, "float32", "loss of each token")
    del largest, predicted, total

    backward = _compiled(dtype) if options(ctx).cross_entropy == "native" else _in_place(dtype)

    tape.record(out, (logits,), (probs, mask, target), backward)
    return out


def _in_place(dtype: str) -> Backward:
    """The probabilities become the gradient, in the logits' dtype."""

    def backward(wants: tuple[bool, ...], g: Tensor, probs: Tensor, *rest: Tensor) -> tuple[Tensor]:
        return (Tensor(g.tape, probs.shape, dtype, probs.storage) if dtype == "float32" else like(probs, "gradient of logits", dtype),)

    return backward


def _compiled(dtype: str) -> Backward:
    """One kernel writes a copy less ones at labels, the probabilities and the gradient (fusions/fused_cross_entropy.py, ``calculate_gradients``)."""

    def backward(wants: tuple[bool, ...], g: Tensor, probs: Tensor, *rest: Tensor) -> tuple[Tensor]:
        updated = like(probs, "probabilities less ones")
        made = like(probs, "gradient of logits", "bfloat16")
        del updated
        return (made if dtype == "bfloat16" else like(probs, "gradient of logits, cast", dtype),)

    return backward
