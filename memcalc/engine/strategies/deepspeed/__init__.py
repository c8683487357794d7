"""DeepSpeed: the class of a rank follows from the stage and the dtype of accumulation, as DeepSpeedEngine picks its optimizer wrapper.

Checked against deepspeed 0.19.8; file names in this package are under deepspeed/runtime.
"""

from __future__ import annotations

from memcalc.engine.strategies.base import Strategy
from memcalc.specs.job import Job


def choose(job: Job) -> type[Strategy]:
    """The class of a job's ranks (engine.py, ``_do_optimizer_sanity_check``).

    Raises:
        InputError: DeepSpeed refuses the combination.
    """
    config = job.deepspeed
    assert config is not None
    stage = config.zero.stage
    if stage == 3:
        from memcalc.engine.strategies.deepspeed.zero3 import Stage3

        return Stage3
    if stage == 0:
        from memcalc.engine.strategies.deepspeed.zero0 import choose_stage0

        return choose_stage0(config)
    if stage == 1 and config.dtype == "bfloat16" and config.gradient_dtype == "float32" and config.zero.offload_optimizer.device == "none":
        from memcalc.engine.strategies.deepspeed.bf16 import Bf16Immediate, Bf16Optimizer

        return Bf16Immediate if config.bf16.immediate_grad_update else Bf16Optimizer
    from memcalc.engine.strategies.deepspeed.zero12 import Stage1, Stage1Cast, Stage2

    if stage == 2:
        return Stage2
    return Stage1 if config.gradient_dtype == config.dtype else Stage1Cast
