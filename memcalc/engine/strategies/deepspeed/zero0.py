"""Stage 0: nothing is partitioned.

Weights of 16 bits have an fp32 copy each, which torch's optimizers step tensor by tensor (fp16/unfused_optimizer.py) and DeepSpeed's FusedAdam
as one flat tensor (fp16/fused_optimizer.py); fp32 weights are stepped as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.engine.plan import Part
from memcalc.engine.strategies.deepspeed.common import Rank
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas.buckets import largest_group
from memcalc.specs.deepspeed import DeepSpeed

ALLREDUCE_NUMEL = 500_000_000
"""Gradients are flattened for reduction until they are more than so many elements (engine.py, ``MEMORY_OPT_ALLREDUCE_SIZE``)."""


def choose_stage0(config: DeepSpeed) -> type[Stage0]:
    """The optimizer wrapper (engine.py, ``_configure_fp16_optimizer``)."""
    if config.dtype == "float32":
        return Stage0
    return Fused if config.builds_fused_adam else Unfused


class Stage0(Rank):
    """A replica with fp32 weights."""

    uniform = True
    marks = "none"

    def states(self, walk: Walk) -> None:
        """Optimizer states of the weights themselves."""
        self.optimizer_on_card(walk, self.stepped)

    @property
    def stepped(self) -> Sequence[int]:
        """The tensors that the optimizer steps."""
        return [m.numel for m in self.members]

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs back."""
        walk.apply(part.profile.backward)

    def end_backward(self, walk: Walk) -> None:
        """Gradients are flattened, group by group, and reduced (``buffered_allreduce_fallback``)."""
        group = largest_group((m.numel for m in self.members), limit=ALLREDUCE_NUMEL)
        cast = self.reduce_width if self.reduce_width != self.width else 0
        why = Reason("elements of a group * width", {"elements": group, "width": self.width + cast}, "engine.py, allreduce_bucket")
        walk.touch("buffers/gradients flattened for reduction", group * (self.width + cast), why)

    def step(self, walk: Walk) -> None:
        """The optimizer's own temporaries."""
        self.optimizer_step(walk, self.stepped)


class Unfused(Stage0):
    """Weights of 16 bits, each with an fp32 copy."""

    def states(self, walk: Walk) -> None:
        """An fp32 copy of each weight, and its states."""
        self.master(walk, self.num_trainable)
        super().states(walk)

    def initialize(self, walk: Walk) -> None:
        """The optimizer makes its states in a first step, with zeros for gradients of both kinds (``initialize_optimizer_states``)."""
        super().initialize(walk)
        self.states(walk)
        walk.alloc("gradients/zeros", self.num_trainable * (self.width + self.master_width))
        self.optimizer_step(walk, self.stepped)

    def step(self, walk: Walk) -> None:
        """Norms tensor by tensor; an fp32 copy of every gradient; the optimizer."""
        walk.touch("gradients/norm in fp32", self.largest * 4, Reason("largest * 4", {"largest": self.largest}, "utils.py, get_weight_norm"))
        walk.alloc(
            "gradients/in fp32",
            self.num_trainable * self.master_width,
            Reason("num_params * width", {"num_params": self.num_trainable, "width": self.master_width}, "fp16/unfused_optimizer.py, step"),
        )
        super().step(walk)


class Fused(Stage0):
    """Weights of 16 bits in a flat buffer, with a flat fp32 copy."""

    @property
    def stepped(self) -> Sequence[int]:
        """One flat tensor."""
        return [self.num_trainable]

    def states(self, walk: Walk) -> None:
        """The flat fp32 copy, and its states."""
        self.master(walk, self.num_trainable)
        super().states(walk)

    def initialize(self, walk: Walk) -> None:
        """The weights are cloned and flattened; the optimizer makes its states in a first step, with zeros for gradients."""
        super().initialize(walk)
        walk.touch("weights/clones and flat buffer", 2 * self.num_trainable * self.width)
        self.states(walk)
        walk.alloc("gradients/zeros", self.num_trainable * self.master_width)

    def step(self, walk: Walk) -> None:
        """An fp32 copy of every gradient, and all of them once more as one flat tensor."""
        num_bytes = self.num_trainable * self.master_width
        inputs = {"num_params": self.num_trainable, "width": self.master_width}
        walk.alloc("gradients/in fp32", num_bytes, Reason("num_params * width", inputs, "fp16/fused_optimizer.py, step"))
        walk.alloc("gradients/flat in fp32", num_bytes, Reason("num_params * width", inputs, "fp16/fused_optimizer.py, step"))
        walk.free("gradients/in fp32", num_bytes)
        for member in self.members:
            walk.free(member.gradient, member.numel * self.width)
        super().step(walk)
