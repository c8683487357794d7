"""Stage 1 with bf16 weights and fp32 accumulation: the BF16 optimizer, whose fp32 gradient of *all* parameters stays on every rank.

How memory moves (bf16_optimizer.py, ``BF16_Optimizer``): weights, in one flat buffer; beside them a flat gradient in the dtype of accumulation,
there from construction on; backward makes bf16 gradients, which are added into it at the end (or, with ``immediate_grad_update``, each as
it arrives) and go after the step; it is reduced in the dtype of the wire; the optimizer steps the partition.
"""

from __future__ import annotations

from typing import Any

from memcalc.engine.plan import Part, Shard
from memcalc.engine.strategies._marked import free
from memcalc.engine.strategies.deepspeed.common import Rank, flatten_weights
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import zero
from memcalc.tape.tensor import Record


class Bf16Optimizer(Rank):
    """A rank with the whole fp32 gradient."""

    def states(self, walk: Walk) -> None:
        """Padding, the flat gradient, the partition's master weights and states."""
        flat = zero.flat_numel(self.num_trainable, ranks=self.ranks)
        why = Reason("(flat_numel - num_params) * width", {}, "bf16_optimizer.py, _flatten_dense_tensors_aligned")
        walk.alloc("weights/padding of the flat buffer", (flat - self.num_trainable) * self.width, why)
        self.made_at_once(walk, flat)
        self.optimizer_on_card(walk, [flat // self.ranks])

    def made_at_once(self, walk: Walk, flat: Any) -> None:
        """The flat gradient and the partition's master weights."""
        why = Reason("flat_numel * width", {"flat_numel": flat, "width": self.gradient_width}, "bf16_optimizer.py, fp32_groups_gradients_flat")
        walk.alloc("gradients/flat, accumulated", flat * self.gradient_width, why)
        self.master(walk, flat // self.ranks)

    def initialize(self, walk: Walk) -> None:
        """The weights are flattened; the flat gradient is there from here on."""
        flatten_weights(walk, self)
        self.made_at_once(walk, zero.flat_numel(self.num_trainable, ranks=self.ranks))

    def end_backward(self, walk: Walk) -> None:
        """All gradients are cast and added, one by one; the flat gradient is reduced."""
        self.add(walk, self.largest)
        flat = zero.flat_numel(self.num_trainable, ranks=self.ranks)
        cast = flat * self.reduce_width if self.reduce_width != self.gradient_width else 0
        why = Reason("flat_numel * width", {"flat_numel": flat, "width": self.reduce_width}, "engine.py, allreduce_bucket")
        walk.touch("buffers/gradient cast for reduction", cast, why)

    def add(self, walk: Walk, numel: Any) -> None:
        """A gradient is cast and added to the flat one."""
        why = Reason("elements * width", {"elements": numel, "width": self.gradient_width}, "bf16_optimizer.py, _update_hp_grad")
        walk.touch("gradients/cast of a gradient", numel * self.gradient_width, why)

    def step(self, walk: Walk) -> None:
        """The partition of the flat gradient is a view; the optimizer's own temporaries."""
        self.optimizer_step(walk, [zero.partition_numel(self.num_trainable, ranks=self.ranks)])


class Bf16Immediate(Bf16Optimizer):
    """Each gradient is added as it arrives, and goes (``immediate_grad_update``)."""

    accumulates_whole = False

    def accumulated(self, walk: Walk) -> None:
        """Nothing besides the flat gradient."""

    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """It is cast and added, and goes."""
        self.add(walk, shard.num_params)
        free(walk, alive)
