"""A student's loss against a teacher's whole distribution.

Source: TRL 1.10, experimental/gkd/gkd_trainer.py, ``GKDTrainer.compute_loss`` and ``generalized_jsd_loss`` with its default beta.
"""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.transformers.log_probs import returned, shifted
from memcalc.components import Head
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def distillation(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss; the teacher's logits are there, in the student's dtype."""
    tape = ctx.tape
    logits = ctx.shared["logits"] = returned(ctx, m, x)
    judged = tape.new(logits.shape, logits.dtype, "teacher's logits")
    own = F.scale(shifted(ctx, logits), "logits / temperature")
    theirs = F.scale(shifted(ctx, judged), "teacher's logits / temperature")
    student, teacher = F.log_softmax(own, "log-softmax"), F.log_softmax(theirs, "teacher's log-softmax")
    mixture = _mixed(student, teacher)
    of_teacher = _divergence(teacher, mixture)
    of_student = _divergence(student, mixture)
    first = F.scale(of_teacher, "weighted divergence")
    second = F.scale(of_student, "weighted divergence")
    both = F.add(first, second, "divergence")
    del first, second
    tokens = Axis("batch * (seq_len - 1)", ctx.batch.size * (ctx.seq.size - 1))
    return _summed(F.index(both, (tokens, both.shape[-1]), "divergence of labelled tokens"))


def _summed(x: Tensor) -> Tensor:
    """``x.sum()``, whose gradient is one number, seen everywhere."""
    out, shape, dtype = x.tape.new((), x.dtype, "loss"), x.shape, x.dtype
    x.tape.record(out, (x,), (), lambda wants, g: (Tensor(g.tape, shape, dtype, g.storage),))
    return out


def _mixed(student: Tensor, teacher: Tensor) -> Tensor:
    """Log-probabilities of the mixture: both with the logarithm of their weight, stacked, summed under the logarithm."""
    a, b = F.add_scalar(student, "weighted log-softmax"), F.add_scalar(teacher, "weighted log-softmax")
    stacked = a.tape.new((Axis("2", 2), *a.shape), a.dtype, "stacked log-softmax")
    shape, dtype = a.shape, a.dtype
    a.tape.record(stacked, (a, b), (), lambda wants, g: (Tensor(g.tape, shape, dtype, g.storage), None))
    del a, b
    out = F.like(student, "log-softmax of the mixture")

    def backward(wants: tuple[bool, ...], g: Tensor, stacked: Tensor, out: Tensor) -> tuple[Tensor]:
        shifted_, exponents = F.like(stacked, "difference"), F.like(stacked, "exp")
        made = F.like(stacked, "gradient of log-sum-exp")
        del shifted_, exponents
        return (made,)

    stacked.tape.record(out, (stacked,), (stacked, out), backward)
    return out


def _divergence(target: Tensor, mixture: Tensor) -> Tensor:
    """``F.kl_div(mixture, target, log_target=True)``: the target's probabilities times the difference."""
    difference = F.sub(target, mixture)
    return F.mul(F.keeps_result(target, "exp"), difference, "divergence of one")
