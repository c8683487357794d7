"""Who shards: one file per engine. Each says what is resident, and what it does around blocks, gradients and the step."""

from __future__ import annotations

from importlib import import_module

from memcalc.engine.optimizers import optimizer_for
from memcalc.engine.strategies.base import Strategy
from memcalc.specs.job import Job


def strategy_for(job: Job) -> type[Strategy]:
    """The class of the engine that a job names: what `choose` in the module of that name picks, or its `Engine`; that of optimizers that step in backward."""
    if job.run.task == "train" and (job.run.optimizer_in_backward or not optimizer_for(job.run.optimizer).keeps_gradients):
        from memcalc.engine.strategies._in_backward import InBackward

        return InBackward
    module = import_module(f"memcalc.engine.strategies.{job.engine}")
    choose = getattr(module, "choose", None)
    found: type[Strategy] = module.Engine if choose is None else choose(job)
    return found


__all__ = ["Strategy", "strategy_for"]
