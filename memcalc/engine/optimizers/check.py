"""Which optimizers go with which engines."""

from __future__ import annotations

from memcalc.engine.optimizers import optimizer_for
from memcalc.engine.optimizers.base import Optimizer
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.run import Run

MEGATRON = ("adamw_torch", "adamw_torch_fused", "sgd")
"""What stands for Megatron's own Adam and SGD."""


def check_optimizer(job: Job, optimizer: Optimizer) -> None:
    """An optimizer that the engine cannot run with is an error.

    Raises:
        InputError: whole matrices that the engine would cut or flatten; a step in backward where gradients are reduced first, or added up.
    """
    name, engine, run = job.run.optimizer, job.engine, job.run
    if engine == "megatron" and name not in MEGATRON:
        raise InputError(f"engine megatron has optimizers of its own, which {' and '.join(MEGATRON)} stand for, not {name}", where="optimizer")
    if optimizer.whole_matrices and engine != "ddp":
        raise InputError(f"{name} needs whole matrices, which engine {engine} cuts or flattens; use engine ddp", where="optimizer")
    if run.optimizer_in_backward and (run.task != "train" or run.grad_accum > 1):
        raise InputError("a step in backward adds up no gradients, and is known for task train: grad_accum 1", where="optimizer_in_backward")
    if run.optimizer_in_backward or not optimizer.keeps_gradients:
        if engine != "ddp" or not isinstance(job.mesh.world, int) or job.mesh.world > 1:
            raise InputError(f"{name} steps in backward, before gradients could be reduced: one card, engine ddp", where="optimizer")
        if optimizer.whole_matrices and run.grad_accum > 1:
            raise InputError(f"{name} steps in backward and adds up no gradients: grad_accum 1", where="grad_accum")
    deepspeed = job.deepspeed
    if deepspeed is not None and deepspeed.builds_fused_adam and not name.startswith("adamw_torch"):
        raise InputError(f"the DeepSpeed configuration makes its own Adam; leave its optimizer out to use {name}", where="optimizer")
    offloads = run.offload.optimizer is not None or run.offload.params is not None or _deepspeed_offloads(job)
    if offloads and name not in ("adamw_torch", "adamw_torch_fused") and engine == "deepspeed":
        raise InputError(f"DeepSpeed steps what it offloads with its CPU Adam, not {name}", where="optimizer")


def _deepspeed_offloads(job: Job) -> bool:
    return job.deepspeed is not None and job.deepspeed.zero.offload_optimizer.device != "none"


def ignored_by_optimizer(run: Run) -> tuple[str, ...]:
    """Keys of other optimizers that were given."""
    given = run.model_fields_set
    low_rank = run.optimizer.startswith(("galore", "apollo"))
    used = {"momentum": run.optimizer in ("sgd", "rmsprop"), "optimizer_rank": low_rank, "optim_target_modules": low_rank}
    used["optimizer_foreach"] = optimizer_for(run.optimizer).has_foreach
    return tuple(f"{key}: {run.optimizer} has no such knob" for key, uses in used.items() if key in given and not uses)
