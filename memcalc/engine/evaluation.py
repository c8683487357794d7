"""An evaluation between two steps: forward to the loss without a graph, and the logits that the Trainer keeps for metrics.

Source: transformers 5, trainer.py, ``Trainer.evaluation_loop`` and ``prediction_step``; trainer_pt_utils.py, ``EvalLoopContainer``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from memcalc.code.context import Settings
from memcalc.engine import step
from memcalc.engine.plan import Plan, make_plan
from memcalc.engine.ranks import blocks_of
from memcalc.engine.result import Term
from memcalc.engine.settings import settings_of
from memcalc.engine.strategies import strategy_for
from memcalc.engine.walk import Reason, Walk
from memcalc.errors import InputError
from memcalc.formulas.loss import logits_bytes
from memcalc.specs.job import Job
from memcalc.specs.run import EvaluationSpec, Run
from memcalc.tape.span import minimum
from memcalc.units import DTYPE_BYTES, ceil_div

SOURCE = "transformers/trainer_pt_utils.py, EvalLoopContainer"
TRAINING_ONLY = "fused_linear"
"""The loss that is there for training alone: Liger's models make whole logits otherwise (liger_kernel/transformers/model, ``skip_logits``)."""
HOST_WIDTH = 4
"""Bytes of a logit on the host: numpy has no bfloat16, and what is fp32 stays."""


def evaluate(job: Job, spec: EvaluationSpec, *, detailed: bool = True, plan_of: Callable[[Job, Settings], Plan] | None = None, keeps: bool = True) -> Walk:
    """The instant ``evaluation``: the most that is alive while samples go through a model that is being trained.

    States are there and gradients are not. Logits and labels of all data-parallel ranks are gathered on each, and joined to those before, so that
    they stand twice for a moment. Under autocast the loop gets logits in fp32 (accelerate, ``convert_outputs_to_fp32``).

    Args:
        job: the training, resolved; its sizes may be arrays.
        spec: how it is evaluated.
        detailed: see `Walk`.
        plan_of: makes the plan of what runs here; by default, of the whole model.
        keeps: what is kept of the batches is kept here.
    """
    if spec.micro_batch is not None:
        job = replace(job, micro_batch=spec.micro_batch)
    strategy_class = strategy_for(job)
    loss = job.run.loss if spec.prediction_loss_only and job.run.loss != TRAINING_ONLY else "cross_entropy"
    settings = strategy_class.settings(job, replace(settings_of(job), evaluating=True, loss=loss))
    plan = plan_of(job, settings) if plan_of is not None else make_plan(job, blocks_of(job), settings, keep_gradients=False, accumulate=False)
    walk, strategy = Walk(detailed=detailed), strategy_class(job, plan)
    strategy.resident(walk)
    with walk.window("evaluation"):
        if spec.prediction_loss_only or not keeps:
            step.forward(walk, plan, strategy)
        else:
            joined, earlier, bound = _kept(job, spec)
            why = Reason("sequences * seq_len * (vocab_size * width + 8)", {"sequences": earlier, "width": _width(job)}, SOURCE)
            walk.alloc("evaluation/logits and labels of earlier batches", _bytes(job, earlier), why)
            walk.alloc("evaluation/logits and labels of the batch before", _bytes(job, bound), why)
            step.forward(walk, plan, strategy)
            walk.free("evaluation/logits and labels of the batch before", _bytes(job, bound))
            walk.alloc("evaluation/logits and labels of this batch", _bytes(job, joined - earlier), why)
            walk.touch("evaluation/all of them, joined", _bytes(job, joined * (earlier > 0)), why)
    return walk


def host_terms(job: Job) -> tuple[Term, ...]:
    """What the evaluation that a run asks for keeps in the host's memory: every rank all logits, twice while the last are joined to them."""
    spec = job.run.evaluation
    if spec is None or spec.samples is None or spec.prediction_loss_only:
        return ()
    num_bytes = _bytes(job, spec.samples, width=HOST_WIDTH)
    inputs = {"samples": spec.samples, "seq_len": job.seq_len, "vocab_size": job.model.vocab_size}
    return (Term("host/pageable/logits and labels of evaluation", num_bytes, "samples * seq_len * (vocab_size * 4 + 8)", inputs, SOURCE),)


def refuse_evaluation(run: Run, spec: EvaluationSpec) -> None:
    """Say no to what is asked and cannot be given.

    Raises:
        InputError: it is not the Trainer's loop that runs, or it is not said how much is kept.
    """
    if run.task != "train" or run.code != "transformers" or run.sharding.pp > 1:
        raise InputError("it is an evaluation in the loop of transformers' Trainer: task train, code transformers, without a pipeline", where="evaluation")
    if not spec.prediction_loss_only and spec.samples is None:
        raise InputError("logits of how many sequences are kept? give evaluation.samples", where="evaluation.prediction_loss_only")
    if spec.prediction_loss_only:
        for key in ("samples", "accumulation_steps"):
            if getattr(spec, key) is not None:
                raise InputError("the loss alone is kept; give evaluation.prediction_loss_only: false, or leave it out", where=f"evaluation.{key}")


def _kept(job: Job, spec: EvaluationSpec) -> tuple[Any, Any, Any]:
    """Sequences whose logits are on the card: all that are joined, those before the last batch, those of the batch before where they are held apart.

    The first batch is what the later ones are joined to, so it is not held apart.
    """
    assert spec.samples is not None
    batch = job.micro_batch * job.mesh.dp
    batches = ceil_div(spec.samples, batch)
    if spec.accumulation_steps is not None:
        batches = minimum(batches, spec.accumulation_steps)
    joined = minimum(batches * batch, spec.samples)
    earlier = (batches - 1) * batch
    return joined, earlier, batch * (batches > 2)


def _bytes(job: Job, sequences: Any, *, width: int = 0) -> Any:
    return logits_bytes(sequences, seq_len=job.seq_len, vocab=job.model.vocab_size, width=width or _width(job)) + sequences * job.seq_len * 8


def _width(job: Job) -> int:
    return DTYPE_BYTES["float32"] if job.run.autocast is not None else DTYPE_BYTES[job.run.dtype]
