"""What token dispatchers keep of their last pass: scores, and through their place in the graph the input of a checkpoint and its gradient."""

from __future__ import annotations

from typing import Any

from memcalc.components.moe import MoE
from memcalc.engine.plan import Part, Plan
from memcalc.engine.settings import components
from memcalc.engine.step import num_bytes
from memcalc.engine.strategies.base import Strategy
from memcalc.engine.walk import Reason, Walk
from memcalc.specs.job import Job
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES

BEHIND = "buffers/inputs of layers and their gradients, behind scores"
WHY = Reason(
    "2 * tokens * hidden_size * width for each layer",
    {},
    "megatron/core/transformer/moe/token_dispatcher.py, self.probs, whose graph ends in the inputs of tensor_parallel/random.py, CheckpointFunction",
)
TABLES = "buffers/scores, choices and orders of dispatchers"


class Routed(Strategy):
    """Megatron-core's layers with experts, each of which has a dispatcher with the scores, the choice and the order of the last pass.

    Scores that a checkpoint has made anew lead, through a graph that has run back, to the layer's input and what has arrived there as its
    gradient; both stay until the next pass puts other scores in their place.
    """

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self._there, self._arrived = False, 0
        self._sizes: dict[int, Any] = {}

    def behind(self, walk: Walk) -> None:
        """Inputs and gradients of all layers."""
        self._there = True
        for part in self.plan.parts:
            walk.repeat(part.block.repeat, lambda i, part=part: self._stay(walk, self._behind(part), self._behind(part)))  # type: ignore[misc]

    def tables(self, walk: Walk) -> None:
        """What dispatchers keep in any case; the order of rows where nothing else does."""
        total = sum(self._table(part, experts) * part.block.repeat for part in self.plan.parts for experts in experts_of(part))
        if self.plan.settings.training:
            walk.alloc(TABLES, total, Reason("tokens * experts * (width + 1), and rows", {}, "megatron/core/transformer/moe/token_dispatcher.py"))

    def forward(self, walk: Walk, part: Part, i: int) -> None:
        """New scores take the place of those of the last pass."""
        if self._there:
            walk.free(BEHIND, 2 * self._behind(part))
        super().forward(walk, part, i)

    def end_forward(self, walk: Walk) -> None:
        """All are new."""
        super().end_forward(walk)
        self._there = False

    def begin_backward(self, walk: Walk) -> None:
        """Nothing has arrived."""
        super().begin_backward(walk)
        self._arrived = 0

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """The input stays, and so does the gradient that was this block's, if the block after it has let go of its own likewise."""
        super().backward(walk, part, i)
        own = self._behind(part)
        self._stay(walk, own, self._arrived, 0 if part.profile.reruns else own)
        self._arrived = own if part.profile.reruns else 0

    def end_backward(self, walk: Walk) -> None:
        """The gradient of the first layer's input stays as well."""
        super().end_backward(walk)
        self._stay(walk, self._arrived)
        self._arrived, self._there = 0, True

    @staticmethod
    def _stay(walk: Walk, *tensors: Any) -> None:
        for size in tensors:
            if not isinstance(size, int) or size:
                walk.alloc(BEHIND, size, WHY)

    def _behind(self, part: Part) -> Any:
        """Bytes of the input of a checkpoint around experts: of the whole block, or of the mixture alone."""
        key = id(part)
        if key not in self._sizes:
            runs_again = part.profile.reruns or "moe" in self.plan.settings.options.recompute
            self._sizes[key] = num_bytes(part.profile.out) if runs_again and self.plan.settings.records and experts_of(part) else 0
        return self._sizes[key]

    def _table(self, part: Part, m: MoE) -> Any:
        settings, shape = self.plan.settings, part.profile.out.shape
        tokens, width = numel(shape[:-1]), DTYPE_BYTES[settings.options.router_dtype or settings.dtype]
        order = (4 * (2 * m.gate.experts.size + 1) if settings.options.permute_fusion else 8 * m.gate.top_k) if part.profile.reruns else 0
        return tokens * (m.gate.experts.size * (width + 1) + order)


def experts_of(part: Part) -> list[MoE]:
    """The mixtures in a block."""
    return [m for m in components(part.block.module) if isinstance(m, MoE)]
