"""Engines that act inside a block: where a gradient is complete, where a module begins and ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from memcalc.code.context import Settings
from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.strategies.base import Strategy
from memcalc.engine.walk import Reason, Walk
from memcalc.specs.job import Job
from memcalc.tape.tensor import Record


class Marked(Strategy):
    """A rank whose engine acts at the marks in its blocks' ledgers."""

    marks: Literal["none", "gradients", "modules"] = "gradients"

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self.known = {id(part): {f"gradients/{s.path}": s for s in part.shards} for part in plan.parts}
        self._waiting: list[Record] = []

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:  # noqa: ARG003 (a hook: others decide by the job)
        """Blocks are recorded with marks."""
        return replace(settings, marks=cls.marks)

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs back, from mark to mark."""
        for span, mark in part.profile.backward_steps:
            walk.apply(span)
            if mark is not None:
                self.at(walk, part, part.block.repeat - 1 - i, mark)

    def at(self, walk: Walk, part: Part, i: int, mark: Record) -> None:
        """A mark is passed in the i-th repetition of a block (in the order of the model)."""
        shard = self.known[id(part)].get(mark.path)
        if shard is not None:
            self.gradient(walk, part, i, shard, self._summed(walk, part, mark))
        elif mark.path.startswith("gradients/"):
            self._waiting.append(mark)
            if self.accumulates:
                walk.alloc(mark.path, mark.num_bytes)

    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """The gradient of a parameter is complete.

        Args:
            shard: the parameter.
            alive: what holds its bytes, to be let go of with `free`.
        """

    def _summed(self, walk: Walk, part: Part, mark: Record) -> tuple[Record, ...]:
        """A tied table's gradient waits for the embedding's, and the two are summed into a third (in place on a GPU, where no mode watches)."""
        waited = next((record for record in self._waiting if record.path == mark.path), None)
        if waited is None:
            return (mark,)
        self._waiting.remove(waited)
        walk.touch(
            "gradients/sum of a tied table's", 2 * mark.num_bytes, Reason("2 * num_params * width", {}, "torch/csrc/autograd/input_buffer.cpp, accumulate")
        )
        if self.accumulates:
            walk.free(waited.path, waited.num_bytes)
        return (mark,)

    @property
    def accumulates(self) -> bool:
        """Whether whole gradients of earlier micro-batches are there, so that new ones are added and go."""
        return self.accumulates_whole and self.job.run.grad_accum > 1


def free(walk: Walk, alive: tuple[Record, ...]) -> None:
    """The bytes of a gradient die."""
    for record in alive:
        walk.free(record.path, record.num_bytes)


def num_bytes(shard: Shard) -> Any:
    """Bytes of a parameter of one repetition."""
    return shard.num_params * shard.width


__all__ = ["Marked", "free", "num_bytes"]
