"""One model of several: what it holds while it works and while others do, and the most that each of its passes needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from memcalc.code.context import Settings
from memcalc.code.objective import Objective
from memcalc.engine import step
from memcalc.engine.pipeline import Recorder, merged, walk_stage
from memcalc.engine.plan import Plan, make_plan
from memcalc.engine.ranks import Stage, blocks_of, stages_of
from memcalc.engine.result import Term
from memcalc.engine.settings import settings_of, trainable_of
from memcalc.engine.strategies import Strategy, strategy_for
from memcalc.engine.strategies.base import whole_model
from memcalc.engine.walk import Reason, Snapshot, Walk
from memcalc.specs.job import Role
from memcalc.tape.span import maximum
from memcalc.units import DTYPE_BYTES

IDLE = {"params": ("weights/",), "optimizer": ("optimizer/",), "gradients": ("gradients/",), "moments": ("optimizer/exp_avg",)}
"""What goes to the host between phases, by the beginnings of its paths; buffers stay. Gradients are gone by then, but for those that have a buffer."""
TRAINED = frozenset(("optimizer", "gradients", "moments"))
"""What of that nobody needs who is not trained."""
HELD = "policy in place"
"""The objective whose logits the loop holds."""
SENT = "activations/hidden_states that were sent"
SHARDS = ("gradients/",)
"""What DeepSpeed holds of gradients for good, which goes with its optimizer (engine.py, offload_states)."""


class _Held(Walk):
    """What is there for good, by path; sizes may be arrays, of which no peak is looked for."""

    def repeat(self, times: int, body: Callable[[int], None]) -> None:
        """One after the other."""
        for i in range(times):
            body(i)

    def _look(self, extra: Any, paths: dict[str, int]) -> None:
        """Nothing is taken down."""


class Player:
    """A role on the card.

    Args:
        role: which.
        micro_batch, seq_len: of its passes, unless they say otherwise; ints or arrays.
        detailed: see `Walk`.
        stage: of its pipeline that the card holds.

    Attributes:
        reasons, records: of the terms of its walks, by path.
    """

    def __init__(self, role: Role, *, micro_batch: Any, seq_len: Any, detailed: bool, stage: int = 0) -> None:
        self.role, self.detailed, self.stage = role, detailed, stage
        self.job = replace(role.job, micro_batch=micro_batch, seq_len=seq_len)
        self.trains = self.job.run.task == "train"
        self.strategy_class = strategy_for(self.job)
        self.reasons: dict[str, Reason] = {}
        self.records: dict[str, Any] = {}

    @property
    def width(self) -> int:
        """Bytes of one of its weights as it computes with them."""
        return DTYPE_BYTES[self.job.run.autocast or self.job.run.dtype]

    # ------------------------------------------------------------------ between passes
    @cached_property
    def resident(self) -> Snapshot:
        """All that it holds between its passes."""
        walk = _Held()
        self._strategy().resident(walk)
        self._note(walk)
        return self._own(Snapshot(walk.total, there(walk.by_path)))

    @cached_property
    def idle(self) -> Snapshot:
        """What of that is on the card while others work."""
        return self._without(self.role.idle)

    @cached_property
    def at_rest(self) -> Snapshot:
        """What of it is on the card while it works and is not trained: what only training needs stays away."""
        return self._without(self.role.idle & TRAINED)

    def _without(self, away: frozenset[str]) -> Snapshot:
        starts = tuple(start for what in sorted(away) for start in IDLE[what])
        if "optimizer" in away and self.job.engine == "deepspeed":
            starts += SHARDS
        if not starts:
            return self.resident
        kept = {path: n for path, n in self.resident.by_path.items() if not path.startswith(starts)}
        return Snapshot(sum(kept.values()), kept)

    @property
    def away_bytes(self) -> Any:
        """What of it waits on the host; buffers of gradients are let go, and made anew."""
        return self.resident.total - self._without(self.role.idle - {"gradients"}).total

    def host(self) -> tuple[Term, ...]:
        """What its engine keeps on the host."""
        return self._strategy().host()

    @cached_property
    def loaded(self) -> Snapshot:
        """The most that is there while it is loaded and its engine is constructed: whole, where that is not done in shards."""
        walk, strategy = Walk(), self._strategy()
        if self.trains:
            step.initialize(walk, strategy)
            self._note(walk)
            return self._own(walk.instants["initialize"])
        if not self.job.loads_whole:
            return self.resident
        whole_model(walk, self.job, strategy.plan)
        self._note(walk)
        return max_of(self.resident, Snapshot(walk.total, dict(walk.by_path)))

    # ------------------------------------------------------------------ passes
    def scores(self, objective: Objective, *, sequences: Any = None) -> Snapshot:
        """The most that is alive while some sequences go through it without a graph.

        Args:
            objective: what its head gives.
            sequences: how many at once.
        """
        settings = replace(self._settings(objective), training=True, evaluating=True, cached=False)
        if sequences is not None:
            settings = replace(settings, batch=sequences)
        plans = self._plans(settings, graph=False)
        found = [self._scored(plan, self.strategy_class(self.job, merged(plans))) for plan in plans]
        asleep = less(self.resident, self.at_rest)
        return less(self._own(max_of(*found)), asleep if self.detailed else Snapshot(asleep.total, {}))

    def _scored(self, plan: Plan, strategy: Strategy) -> Snapshot:
        """A pass of one model chunk; a stage holds what it has sent until it has made the next (forward_backward_pipelining_without_interleaving)."""
        walk = Walk(detailed=self.detailed)
        strategy.resident(walk)
        if plan.sends:
            walk.alloc(SENT, step.num_bytes(plan.parts[-1].profile.out), Reason("hidden states", {}, "megatron/core/pipeline_parallel/schedules.py"))
        with walk.window("scores"):
            step.forward(walk, plan, strategy)
        self._note(walk)
        return walk.instants["scores"]

    def updates(self, objective: Objective, *, aside: Callable[[Walk], None] | None = None, paired: bool = False) -> tuple[Walk, Plan, Strategy]:
        """A training step, all of its instants; arguments as for `scores`, `step.train` and `Recorder`."""
        settings = self._settings(objective)
        if self.job.mesh.pp > 1:
            walk, plan, strategy = walk_stage(self.job, self._held, Recorder(self.job, settings, detailed=self.detailed, paired=paired))
        else:
            plan = merged(self._plans(settings, graph=True))
            walk, strategy = Walk(detailed=self.detailed), self.strategy_class(self.job, plan)
            step.train(walk, plan, strategy, accumulated=self.job.run.grad_accum > 1, aside=aside)
        self._note(walk)
        walk.instants = {name: self._own(shot) for name, shot in walk.instants.items()}
        return walk, plan, strategy

    def generates(self, *, sequences: Any, prompt: Any, answer: Any, gathered: bool) -> Snapshot:
        """The most that is alive while it answers, by its own modules with a cache.

        Args:
            sequences: at once.
            prompt, answer: tokens of each.
            gathered: shards are brought together for as long as it lasts, not layer by layer.
        """
        from memcalc.engine.generation import generate

        run = self.job.run.model_copy(update={"task": "inference", "new_tokens": answer, "num_beams": 1, "recompute": "none"})
        job = replace(self.job, run=run, micro_batch=sequences, seq_len=prompt)
        if gathered:
            job = replace(job, engine="ddp", zero=0, deepspeed=None)
        strategy_class = strategy_for(job)
        plan = make_plan(job, blocks_of(job), strategy_class.settings(job, settings_of(job)), keep_gradients=False, accumulate=False)
        walk, strategy = Walk(detailed=self.detailed), strategy_class(job, plan)
        step.infer(walk, plan, strategy)
        generate(walk, job, None)
        held = Walk()
        strategy.resident(held)
        self._note(walk)
        more = less(max_of(walk.instants["prefill"], walk.instants["generate"]), Snapshot(held.total, held.by_path if self.detailed else {}))
        whole = {path: n for path, n in held.by_path.items() if gathered and path.startswith("weights/")}
        moved = {f"weights/gathered for generation/{path.removeprefix('weights/')}": n for path, n in whole.items()}
        return plus(self.at_rest, more, Snapshot(sum(whole.values()), moved))

    # ------------------------------------------------------------------ inside
    def _settings(self, objective: Objective | None = None) -> Settings:
        settings = replace(
            settings_of(self.job), trainable=trainable_of(self.job), objective=objective, holds_logits=objective is not None and objective.name == HELD
        )
        return self.strategy_class.settings(self.job, settings)

    @property
    def _held(self) -> Stage:
        """The stage of its pipeline that the card holds."""
        return stages_of(self.job)[self.stage]

    def _plans(self, settings: Settings, *, graph: bool) -> list[Plan]:
        """Of each model chunk that the card holds; without a pipeline that is the model."""
        kind = self.strategy_class
        accumulate = graph and self.job.run.grad_accum > 1 and kind.accumulates_whole
        if self.job.mesh.pp > 1:
            recorder, stage = Recorder(self.job, settings, detailed=self.detailed), self._held
            return [recorder.plan(stage, chunk, accumulate=accumulate) for chunk in range(len(stage.chunks))]
        return [make_plan(self.job, blocks_of(self.job), settings, keep_gradients=kind.keep_gradients, accumulate=accumulate)]

    @cached_property
    def _plan(self) -> Plan:
        """All of them, with no question to its head."""
        return merged(self._plans(self._settings(), graph=self.trains))

    def _strategy(self) -> Strategy:
        return self.strategy_class(self.job, self._plan)

    def _note(self, walk: Walk) -> None:
        self.reasons |= walk.reasons
        self.records |= walk.records

    def _own(self, shot: Snapshot) -> Snapshot:
        """Without the weights that are another's."""
        if not self.role.shares:
            return shot
        theirs = self._shared
        return Snapshot(shot.total - sum(theirs.values()), there({path: n - theirs.get(path, 0) for path, n in shot.by_path.items()}))

    @property
    def shared_bytes(self) -> int:
        """Bytes of its weights that stand where the actor's do."""
        return sum(self._shared.values())

    @cached_property
    def _shared(self) -> dict[str, int]:
        """Of its weights and buffers, those that are the actor's: all that it does not train."""
        walk, plan = _Held(), self._plan
        self._strategy().resident(walk)
        held = {path: n for path, n in walk.by_path.items() if path.startswith("weights/") or path == "buffers"}
        if not self.trains:
            return held
        own = sum(s.num_params * s.copies * (s.held_width or plan.width) for s in plan.shards() if s.trainable or "/score/" in s.path)
        share = min(own, sum(held.values()))
        for path in list(held):  # what is its own is filed under its layers
            taken = min(share * held[path] // max(sum(held.values()), 1), held[path])
            held[path] -= taken
        return held


def there(paths: Mapping[str, Any]) -> dict[str, Any]:
    """Without those under which nothing is; an array of bytes stays."""
    return {path: n for path, n in paths.items() if not isinstance(n, int) or n}


def plus(*shots: Snapshot) -> Snapshot:
    """All of them at once."""
    total: Any = 0
    paths: dict[str, int] = {}
    for shot in shots:
        total = total + shot.total
        for path, n in shot.by_path.items():
            paths[path] = paths.get(path, 0) + n
    return Snapshot(total, paths)


def less(shot: Snapshot, other: Snapshot) -> Snapshot:
    """What one holds beyond another."""
    paths = {path: shot.by_path.get(path, 0) - other.by_path.get(path, 0) for path in {**shot.by_path, **other.by_path}}
    return Snapshot(shot.total - other.total, there(paths))


def max_of(*shots: Snapshot) -> Snapshot:
    """The largest; of arrays, the larger total element by element, with no paths."""
    if all(isinstance(shot.total, int) for shot in shots):
        return max(shots, key=lambda shot: int(shot.total))
    total = shots[0].total
    for shot in shots[1:]:
        total = maximum(total, shot.total)
    return Snapshot(total, {})


def named(role: str, shot: Snapshot) -> Snapshot:
    """Its paths under the name of a role."""
    return Snapshot(shot.total, {f"{role}/{path}": n for path, n in shot.by_path.items()})
