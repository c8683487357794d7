"""The instants of one training step, and of inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memcalc.engine.blocks import STREAM, Flow
from memcalc.engine.plan import Part, Plan
from memcalc.engine.strategies import Strategy
from memcalc.engine.walk import Reason, Walk
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES


def num_bytes(flow: Flow) -> Any:
    """Bytes of a tensor that passes between blocks."""
    return numel(flow.shape) * DTYPE_BYTES[flow.dtype]


def train(walk: Walk, plan: Plan, strategy: Strategy, *, accumulated: bool) -> None:
    """Walk through a step: ``start``, ``forward_peak``, ``forward_end``, ``backward_peak``, ``optimizer_step``.

    Args:
        walk: takes the readings.
        plan: this rank's blocks.
        strategy: what the sharding engine does around them.
        accumulated: gradients of earlier micro-batches are there (the step has more than one).
    """
    strategy.resident(walk)
    walk.instant("start")
    one(walk, plan, strategy, accumulated=accumulated)


def one(walk: Walk, plan: Plan, strategy: Strategy, *, accumulated: bool) -> None:
    """A step from its first forward on, with everything resident in place."""
    if accumulated:
        strategy.accumulated(walk)
    with walk.window("forward_peak"):
        forward(walk, plan, strategy)
    walk.instant("forward_end")
    with walk.window("backward_peak"):
        backward(walk, plan, strategy)
    with walk.window("optimizer_step"):
        strategy.step(walk)


def infer(walk: Walk, plan: Plan, strategy: Strategy) -> None:
    """Prefill of one batch: ``load`` (the weights), ``prefill`` (its peak), ``decode`` (between tokens: weights, cache, last logits)."""
    strategy.resident(walk)
    walk.instant("load")
    with walk.window("prefill"):
        forward(walk, plan, strategy)
    walk.free("batch/input_ids", num_bytes(plan.ids))
    walk.instant("decode")


def forward(walk: Walk, plan: Plan, strategy: Strategy) -> None:
    """All blocks forward; the model's own local variables live until its last norm, autocast's casts and the logits until the loss."""
    walk.alloc("batch/input_ids", num_bytes(plan.ids), Reason("micro_batch * seq_len * 8"))
    strategy.begin_forward(walk)
    parts, stream = plan.parts, _Stream(walk, plan)
    for part in parts:

        def body(i: int, part: Part = part) -> None:
            strategy.forward(walk, part, i)
            stream.after(part, i)

        times(walk, strategy, part, body)
    for part in parts:
        walk.repeat(part.block.repeat, lambda i, part=part: walk.apply(part.profile.release))  # type: ignore[misc]
    strategy.end_forward(walk)


def times(walk: Walk, strategy: Strategy, part: Part, body: Callable[[int], None]) -> None:
    """A body for each repetition of a block: the ends only where the engine treats those between alike."""
    if strategy.uniform:
        walk.repeat(part.block.repeat, body)
        return
    for i in range(part.block.repeat):
        body(i)


def backward(walk: Walk, plan: Plan, strategy: Strategy) -> None:
    """All blocks back."""
    strategy.begin_backward(walk)
    for part in reversed(plan.parts):
        if part.block.role == "embedding":
            for name in plan.kept:
                _drop(walk, plan, name)
        times(walk, strategy, part, lambda i, part=part: strategy.backward(walk, part, i))  # type: ignore[misc]
    if plan.leaf is not None:
        walk.alloc("activations/inputs_embeds", num_bytes(plan.leaf), Reason("the embedding's output, made a leaf by enable_input_require_grads"))
    strategy.end_backward(walk)


class _Stream:
    """Locals of the model's own forward: the embedding's output and the shared tensors nobody saves, until the last part before the head is through."""

    def __init__(self, walk: Walk, plan: Plan) -> None:
        self.walk, self.plan = walk, plan
        self.held: Flow | None = None
        self.embeds: Flow | None = None
        self.last = next((part for part in reversed(plan.parts) if part.block.role != "head"), None)

    def after(self, part: Part, i: int) -> None:
        role = part.block.role
        if role == "embedding":
            self.held = part.profile.out if part.profile.holds_output else None
        elif self.held is not None:
            if part.profile.frees_input:
                self.walk.alloc("activations/inputs_embeds", num_bytes(self.held), Reason("the embedding's output, held by the model's forward"))
                self.embeds = self.held
            self.held = None
        if part is self.last and i == part.block.repeat - 1:
            self._let_go()

    def _let_go(self) -> None:
        if self.embeds is not None:
            self.walk.free("activations/inputs_embeds", num_bytes(self.embeds))
        for made in self.plan.parts:
            for name in made.profile.shared:
                if name not in self.plan.kept:
                    _drop(self.walk, self.plan, name)


def _drop(walk: Walk, plan: Plan, name: str) -> None:
    for part in plan.parts:
        if name in part.profile.shared:
            walk.free(f"activations/{name}", num_bytes(part.profile.shared[name]))


__all__ = ["STREAM", "backward", "forward", "num_bytes", "train"]
