"""The output layer and the loss on logits in fp32; under tensor parallelism both on a part of the vocabulary (``loss_parallel``)."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.linear import product
from memcalc.code.torchtitan.parallel import gather
from memcalc.components import Head
from memcalc.errors import InputError
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


@runs(Head)
def output_layer(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq / tp, hidden) → loss (torchtitan/components/loss.py, cross_entropy_loss); the trainer drops the logits before backward."""
    if ctx.settings.loss != "cross_entropy":
        raise InputError(f"torchtitan 0.2.2 has no {ctx.settings.loss} loss; use cross_entropy", where="loss")
    x = gather(ctx, x, "gathered input")
    with ctx.inside(m.proj.module_name):
        params = [ctx.parameter(weight) for weight in m.proj.own_weights()]
        logits = product(ctx, x, params, params[0].shape[0], "output")
    del x
    if not ctx.settings.training:
        return F.view(logits, (ctx.batch, Axis("seq_len", ctx.seq.size), logits.shape[-1]))
    ctx.shared["logits"] = logits
    labels = Tensor(ctx.tape, (ctx.batch, ctx.seq), "int64", None)  # the batch's own
    wide = F.cast(logits, "float32", "logits in fp32")
    del logits
    return F.nll_loss(F.log_softmax(wide), labels) if not ctx.has_tp else parallel_loss(wide)


def parallel_loss(logits: Tensor) -> Tensor:
    """``cross_entropy`` on each rank's part of the vocabulary (torch/distributed/tensor/parallel/loss.py).

    Logits are shifted, their exponentials summed, and the log-softmax, which is saved, is a third copy; one step back makes the gradient of both:
    the one-hot part, exponentials, their sum, and that times the gradient.
    """
    tape = logits.tape
    shifted = like(logits, "shifted logits")
    exponentials = like(logits, "exponentials")
    del exponentials
    log_probs = like(logits, "log-softmax")
    del shifted
    loss = tape.new((), "float32", "loss")

    def backward(wants: tuple[bool, ...], g: Tensor, log_probs: Tensor, *rest: Tensor) -> tuple[Tensor]:
        hot = like(log_probs, "one-hot gradient")
        exponentials = like(log_probs, "exponentials")
        total = like(log_probs, "their sum")
        del exponentials
        made = like(log_probs, "gradient of logits in fp32")
        del hot, total
        return (made,)

    tape.record(loss, (logits,), (log_probs,), backward)
    return loss
