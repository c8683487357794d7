"""Optimizers that step in backward: each weight as its gradient is there, so that no two steps' worth of gradients are ever alive (LOMO, layerwise GaLore)."""

from __future__ import annotations

from memcalc.engine.optimizers import optimizer_for
from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.strategies._marked import Marked
from memcalc.engine.strategies.base import stepped
from memcalc.engine.walk import Reason, Walk
from memcalc.specs.job import Job
from memcalc.tape.tensor import Record
from memcalc.units import DTYPE_BYTES

GRADIENT = "gradients/stepped in backward"


class InBackward(Marked):
    """One card that holds everything, and gradients for a moment each."""

    keep_gradients = False
    accumulates_whole = False

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self.optimizer = optimizer_for(job.run.optimizer)
        self.tensors = {t.path: t._replace(copies=1) for t in stepped(job, plan)}
        self.last: Shard | None = None

    def at(self, walk: Walk, part: Part, i: int, mark: Record) -> None:
        """A tied table's gradient from the head waits for the embedding's."""
        if mark.path.startswith("gradients/") and mark.path not in self.known[id(part)]:
            walk.alloc(mark.path, mark.num_bytes)
        super().at(walk, part, i, mark)

    def _summed(self, walk: Walk, part: Part, mark: Record) -> tuple[Record, ...]:
        if getattr(part.block.module, "tied", False) or part.block.role == "embedding":
            waited, self._waiting = self._waiting, []
            for record in waited:
                copies = 1 if self.plan.settings.sums_in_place else 2
                reason = Reason("num_params * width * copies", {"copies": copies}, "torch/csrc/autograd/input_buffer.cpp")
                walk.touch("gradients/sum of a tied table's", copies * mark.num_bytes, reason)
                walk.free(record.path, record.num_bytes)
        return (mark,)

    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """It is stepped with and goes; under LOMO that happens when the next one is there, which waits meanwhile."""
        walk.alloc(GRADIENT, shard.num_params * shard.width, Reason("num_params * width of one or two tensors", {}, "register_hook on each parameter"))
        ready, self.last = (self.last, shard) if self.optimizer.holds_last else (shard, None)
        self._step(walk, ready)

    def end_backward(self, walk: Walk) -> None:
        """The last gradient that waits."""
        ready, self.last = self.last, None
        self._step(walk, ready)

    def _step(self, walk: Walk, shard: Shard | None) -> None:
        if shard is None:
            return
        gradient = shard.num_params * shard.width
        goes_first = self.optimizer.holds_last and shard.width < DTYPE_BYTES["float32"]  # LOMO drops what it has cast to fp32
        walk.free(GRADIENT, gradient * goes_first)
        for need in self.optimizer.temporaries(self.job, [self.tensors[shard.path]]):
            walk.touch(f"optimizer/{need.name}", need.bytes, Reason(need.formula, {"num_params": shard.num_params, "width": shard.width}, need.source))
        walk.free(GRADIENT, gradient * (not goes_first))

    def accumulated(self, walk: Walk) -> None:
        """Nothing waits from one micro-batch to the next."""

    def step(self, walk: Walk) -> None:
        """All is done."""
