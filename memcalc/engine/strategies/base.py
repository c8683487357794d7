"""What every sharding engine answers; the defaults are one card's: everything resident, nothing gathered."""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Settings
from memcalc.engine.plan import Part, Plan, by_width
from memcalc.engine.result import Term
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import optimizers
from memcalc.specs.job import Job
from memcalc.tape.span import maximum
from memcalc.units import DTYPE_BYTES


class Strategy:
    """One rank's share of states and the events around its blocks.

    Args:
        job: what was asked.
        plan: this rank's blocks, recorded as `keep_gradients` of the class wants them.
    """

    keep_gradients = True
    """Whether a parameter's gradient stays whole where backward makes it, to the end of the step."""
    uniform = True
    """Whether all but the first and last of a run of equal blocks change memory alike, so that those between need not be walked through."""
    accumulates_whole = True
    """Whether a further micro-batch finds whole gradients there, so that each new one is added where it arises and dropped."""
    drops_sent = False
    """Whether a pipeline stage lets go of its output once it is sent (Megatron-core's ``deallocate_pipeline_outputs``)."""

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:  # noqa: ARG003 (a hook: others decide by the job)
        """What programs see, where the engine has a say in it: the dtype of the weights that they compute with."""
        return settings

    def __init__(self, job: Job, plan: Plan) -> None:
        self.job, self.plan = job, plan

    # ------------------------------------------------------------------ states
    def resident(self, walk: Walk) -> None:
        """What is there between steps: weights, buffers, optimizer states."""
        whole_model(walk, self.job, self.plan)
        if self.job.run.task == "train":
            self.states(walk)

    def states(self, walk: Walk) -> None:
        """Optimizer states."""
        optimizer_states(walk, self.job, self.plan)

    def accumulated(self, walk: Walk) -> None:
        """Gradients that earlier micro-batches of the same step have left."""
        for part in self.plan.parts:
            for s in part.shards:
                if s.trainable:
                    walk.alloc(f"gradients/{s.path}", s.num_params * part.block.repeat * s.width)

    # ------------------------------------------------------------------ around blocks
    def begin_forward(self, walk: Walk) -> None:
        """Before the first block."""

    def forward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs forward."""
        walk.apply(part.profile.forward)

    def end_forward(self, walk: Walk) -> None:
        """After the loss."""

    def begin_backward(self, walk: Walk) -> None:
        """Before the gradient of the loss."""

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs back; `i` counts in the order of backward."""
        walk.apply(part.profile.backward)

    def end_backward(self, walk: Walk) -> None:
        """After the last gradient."""

    def step(self, walk: Walk) -> None:
        """The optimizer's own temporaries."""
        optimizer_temporaries(walk, self.job, self.plan)

    # ------------------------------------------------------------------ before the first step
    def initialize(self, walk: Walk) -> None:
        """What the engine's construction around a loaded model needs; torch's optimizers make their states in the first step."""
        whole_model(walk, self.job, self.plan)

    # ------------------------------------------------------------------ outside the card
    def host(self) -> tuple[Term, ...]:
        """What this rank holds in the host's memory."""
        return ()


def whole_model(walk: Walk, job: Job, plan: Plan) -> None:
    """All weights, whole but for tensor and expert parallelism, and the buffers."""
    for part in plan.parts:
        for width, num in by_width(part.shards, plan.width).items() if part.shards else ():
            weights(walk, part, num * part.block.repeat, width, name=other_width(width, plan))
    walk.alloc("buffers", job.model.buffer_bytes, Reason("rotary frequencies and other buffers of the modules"))


def weights(walk: Walk, part: Part, num_params: Any, width: int, *, name: str = "") -> None:
    """Resident weights of a block; `name` tells apart those of another width."""
    walk.alloc(
        f"weights/{part.block.path}{name}",
        num_params * width,
        Reason("num_params * width", {"num_params": num_params, "width": width}, "numel × element size of each parameter"),
    )


def other_width(width: int, plan: Plan) -> str:
    """What tells a term apart whose tensors are not of the model's dtype."""
    return "" if width == plan.width else f" ({8 * width}-bit)"


def optimizer_states(walk: Walk, job: Job, plan: Plan) -> None:
    """States of unsharded tensors that are held in the weights' dtype."""
    tensors = sum(s.copies for s in plan.shards() if s.trainable)
    for width, num in plan.trainable_by_width().items():
        inputs, other = {"num_params": num, "width": width}, other_width(width, plan)
        if job.run.optimizer.startswith("adamw_torch"):
            moments = optimizers.adamw_state_bytes(num, width=width)
            walk.alloc(f"optimizer/moments{other}", moments, Reason("2 * num_params * width", inputs, "torch/optim/adamw.py"))
        elif job.run.optimizer == "sgd":
            momentum = optimizers.sgd_state_bytes(num, width=width, momentum=job.run.momentum > 0)
            walk.alloc(f"optimizer/momentum{other}", momentum, Reason("num_params * width", inputs, "torch/optim/sgd.py"))
    if job.run.optimizer.startswith("adamw_torch"):
        counters = optimizers.STEP_COUNTER_BYTES * tensors
        walk.alloc("optimizer/step counters", counters, Reason("4 * num_tensors", {"num_tensors": tensors}, "torch/optim/adamw.py"))


def optimizer_temporaries(walk: Walk, job: Job, plan: Plan) -> None:
    """What a step of whole tensors allocates on top of states and gradients.

    Tensors of two dtypes step as two groups; the first group's square roots are still bound to their variable while the second's are made.
    Likewise, where tensors step one by one, the quotient of the one before is still bound while the next one's root and quotient are made.
    """
    if job.run.optimizer != "adamw_torch":
        return
    if job.foreach:
        num = plan.trainable_by_width()
        walk.touch(
            "optimizer/square roots",
            sum(optimizers.adamw_foreach_temp_bytes(n, width=width) for width, n in num.items()),
            Reason("num_params * width", {"num_params": sum(num.values()), "width": plan.width}, "torch/optim/adamw.py, _multi_tensor_adamw"),
        )
    else:
        temp: Any = 0
        before: Any = 0
        for s in plan.shards():
            if s.trainable:
                temp = maximum(temp, before + optimizers.adamw_single_temp_bytes(s.num_params, width=s.width))
                before = s.num_params * s.width
        walk.touch("optimizer/square root", temp, Reason("most of (previous + 2 * tensor)", {}, "torch/optim/adamw.py, _single_tensor_adamw"))


__all__ = ["DTYPE_BYTES", "Strategy", "optimizer_states", "optimizer_temporaries", "weights"]
