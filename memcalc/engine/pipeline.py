"""A pipeline: every stage through its step, with as many micro-batches in flight as the schedule puts there.

A micro-batch in flight is what its forward pass has saved. It is the same for every micro-batch, so one is recorded and the others are
multiples of it; the walk itself goes through the turns at which most is alive: one forward pass, and one backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memcalc.code.context import Settings
from memcalc.dataclass import dataclass
from memcalc.engine import step
from memcalc.engine.plan import Arrival, Plan, Records, make_plan
from memcalc.engine.ranks import Stage, num_micro_batches, stages_of
from memcalc.engine.schedule import Schedule, Turn, leads, turns
from memcalc.engine.settings import settings_of
from memcalc.engine.strategies import Strategy, strategy_for
from memcalc.engine.walk import Reason, Walk, Walked
from memcalc.specs.job import Job

IN_FLIGHT = ("activations/", "batch/")
"""What each micro-batch has of its own; everything else that a forward pass leaves is there once."""


AWAITING = "activations/gradients that await those of weights"
PAIRED = "activations/received hidden_states of another model"
WHY_PAIRED = Reason("micro-batches in flight * hidden states", {}, "ms-swift 4, swift/megatron/trainers/dpo_trainer.py, forward_step")
WHY_AWAITING = Reason("micro-batches * gradients of outputs", {}, "torch/distributed/pipelining/_backward.py, stage_backward_input")


def schedule_of(job: Job) -> Schedule:
    """The schedule asked for: one forward, one backward by default, interleaved where a rank holds several model chunks."""
    asked: Schedule | None = job.run.sharding.pp_schedule
    return asked or ("1f1b" if job.mesh.vpp == 1 else "interleaved")


def walk_stages(job: Job, *, detailed: bool = True) -> list[Walked]:
    """Every pipeline stage through its step, in order; without details, those of which no other is known to hold as much at every turn.

    Raises:
        ShardingError: the layers cannot be spread over the stages.
    """
    recorder = Recorder(job, strategy_for(job).settings(job, settings_of(job)), detailed=detailed)
    stages = stages_of(job) if detailed else list(_leading(job, stages_of(job)))
    return [Walked({"pp": stage.index}, job.mesh.world // job.mesh.pp, *walk_stage(job, stage, recorder)) for stage in stages]


def _leading(job: Job, stages: Sequence[Stage]) -> Iterator[Stage]:
    """Stages without those that run what an earlier one runs, with no more in flight at any turn."""
    schedule, shape = schedule_of(job), {"stages": len(stages), "micro_batches": num_micro_batches(job)}
    kept: list[Stage] = []
    for stage in stages:
        alike = (one for one in kept if one.chunks == stage.chunks and not stage.is_last)
        if any(leads(schedule, one.index, stage.index, chunks=len(stage.chunks), **shape) for one in alike):
            continue
        yield stage
        if not stage.is_first:
            kept.append(stage)


class Recorder:
    """Makes the plans of model chunks, recording equal blocks once, and knows what one micro-batch of each leaves and needs.

    Args:
        job: whose pipeline.
        settings: how its blocks run.
        detailed: see `Walk`.
        paired: another model runs forward before each micro-batch, and its hidden states come and go in one tensor with this one's.
    """

    def __init__(self, job: Job, settings: Settings, *, detailed: bool, paired: bool = False) -> None:
        self.job, self.settings, self.detailed, self.paired = job, settings, detailed, paired
        self.strategy = strategy_for(job)
        self.records: Records = {}
        self.trials: dict[tuple[Any, ...], _Trial] = {}
        self._arrival: Arrival | None = None

    def plan(self, stage: Stage, chunk: int, *, accumulate: bool) -> Plan:
        """The plan of one model chunk."""
        begins, ends = stage.is_first and chunk == 0, stage.is_last and chunk == len(stage.chunks) - 1
        plan = make_plan(
            self.job,
            stage.chunks[chunk],
            self.settings,
            keep_gradients=self.strategy.keep_gradients,
            accumulate=accumulate and self.strategy.accumulates_whole,
            arrival=None if begins else self.arrival(accumulate=accumulate),
            sends=not ends,
            records=self.records,
        )
        if begins and plan.parts:
            self._arrival = self._arrival or plan.leaves()
        return plan

    def arrival(self, *, accumulate: bool) -> Arrival:
        """What a stage after the first begins with."""
        if self._arrival is None:
            self.plan(stages_of(self.job)[0], 0, accumulate=accumulate)
        assert self._arrival is not None
        return self._arrival

    def trial(self, plan: Plan, strategy: Strategy) -> _Trial:
        """What one micro-batch of a chunk leaves and needs."""
        key = (*((id(part.profile), part.block.repeat) for part in plan.parts), plan.arrival is None, plan.sends)
        found = self.trials.get(key)
        if found is None:
            found = self.trials[key] = _try(plan, strategy, detailed=self.detailed, paired=self.paired_bytes(plan))
        return found

    def paired_bytes(self, plan: Plan) -> Any:
        """What is received beside a chunk's own hidden states, and held as long as they are."""
        return step.num_bytes(plan.arrival.hidden) if self.paired and plan.arrival is not None else 0


@dataclass
class _Trial:
    """One micro-batch of a chunk for itself.

    Attributes:
        saved: bytes that its forward pass leaves in flight.
        by_path: the same by path.
        forward, backward: the most above their beginning.
        reasons: why, by path.
        awaiting: bytes of the gradients that wait for those of weights, where these are put off.
    """

    saved: Any
    by_path: dict[str, int]
    forward: Any
    backward: Any
    reasons: dict[str, Reason]
    awaiting: Any = 0


def _try(plan: Plan, strategy: Strategy, *, detailed: bool, paired: Any) -> _Trial:
    walk = Walk(detailed=detailed)
    strategy.behind(walk)
    walk.alloc(PAIRED, paired, WHY_PAIRED)
    with walk.window("forward"):
        step.forward(walk, plan, strategy)
    by_path = {path: n for path, n in walk.by_path.items() if path.startswith(IN_FLIGHT) and n}
    saved = sum(by_path.values()) if detailed else walk.total
    before = walk.total
    with walk.window("backward"):
        step.backward(walk, plan, strategy)
    awaiting = sum(part.profile.awaiting_bytes * part.block.repeat for part in plan.parts) if plan.arrival is not None else 0
    return _Trial(saved, by_path, walk.instants["forward"].total, walk.instants["backward"].total - before, walk.reasons, awaiting)


def walk_stage(job: Job, stage: Stage, recorder: Recorder) -> tuple[Walk, Plan, Strategy]:
    """One stage through its step."""
    micro_batches, chunks = num_micro_batches(job), range(len(stage.chunks))
    plans = {False: [recorder.plan(stage, c, accumulate=False) for c in chunks]} if micro_batches == 1 else {}
    plans[True] = plans.get(False) or [recorder.plan(stage, c, accumulate=True) for c in chunks]
    walk = Walk(detailed=recorder.detailed)
    whole = merged(plans[True])
    strategy = recorder.strategy(job, whole)
    saved = Walk(detailed=recorder.detailed)
    if job.run.checkpoint_save:
        step.save(saved, recorder.strategy(job, whole))
    if job.run.task == "inference":
        step.infer(walk, whole, strategy)
        return walk, whole, strategy

    all_turns = _undominated(turns(schedule_of(job), stages=job.mesh.pp, stage=stage.index, chunks=len(stage.chunks), micro_batches=micro_batches))
    if any(turn.first for turn in all_turns) and False not in plans:
        plans[False] = [recorder.plan(stage, c, accumulate=False) for c in chunks]
    trials = {acc: [recorder.trial(p, recorder.strategy(job, merged(plans[acc]))) for p in plans[acc]] for acc in plans}
    gradients = Walk(detailed=recorder.detailed)
    strategy.accumulated(gradients)

    def most(*, forward: bool) -> Turn:
        """The turn at which most is alive; where sizes are arrays, over all of their elements."""
        alive = _alive(trials, gradients.total)
        return max((t for t in all_turns if t.forward == forward), key=lambda t: _sum(alive(t)))

    ahead, back = most(forward=True), most(forward=False)
    strategy.resident(walk)
    walk.instant("start")
    flying = _Flying(walk, trials[True])
    if ahead.accumulated:
        strategy.accumulated(walk)
    flying.become(ahead.in_flight, ahead.waiting)
    walk.alloc(PAIRED, recorder.paired_bytes(plans[True][ahead.chunk]), WHY_PAIRED)
    with walk.window("forward_peak"):
        step.forward(walk, plans[True][ahead.chunk], strategy)
    flying.took_off(ahead.chunk)
    walk.instant("forward_end")
    if back.accumulated and not ahead.accumulated:
        strategy.accumulated(walk)
    flying.become(back.in_flight, back.waiting)
    with walk.window("backward_peak"):
        step.backward(walk, plans[not back.first][back.chunk], strategy)
    walk.free(PAIRED, recorder.paired_bytes(plans[True][back.chunk]))
    flying.landed(back.chunk)
    flying.become((0,) * len(chunks))
    if strategy.keep_gradients and not back.accumulated and micro_batches * len(chunks) > 1 and recorder.detailed:
        for path in [p for p in walk.by_path if p.startswith("gradients/")]:
            walk.free(path)
        strategy.accumulated(walk)
    with walk.window("optimizer_step"):
        strategy.step(walk)
    walk.instants |= saved.instants
    walk.reasons |= saved.reasons
    return walk, whole, strategy


def _undominated(found: tuple[Turn, ...]) -> list[Turn]:
    """Without the turns that come again when gradients are there, too."""
    again = {(*turn[:3], turn.waiting) for turn in found if turn.accumulated}
    return [turn for turn in found if turn.accumulated or (*turn[:3], turn.waiting) not in again]


def _alive(trials: dict[bool, list[_Trial]], gradients: Any) -> Callable[[Turn], Any]:
    """The most alive in a turn, by trial."""

    def total(turn: Turn) -> Any:
        flying = sum(n * trial.saved for n, trial in zip(turn.in_flight, trials[True], strict=True))
        flying = flying + sum(n * trial.awaiting for n, trial in zip(turn.waiting, trials[True], strict=False))
        own = trials[not turn.first][turn.chunk]
        return flying + (own.forward if turn.forward else own.backward) + (gradients if turn.accumulated else 0)

    return total


def _sum(value: Any) -> int:
    """An int, or the sum of an array."""
    return value if isinstance(value, int) else int(value.sum())


class _Flying:
    """The micro-batches in flight, by chunk, as bytes on a walk."""

    def __init__(self, walk: Walk, trials: list[_Trial]) -> None:
        self.walk, self.trials = walk, trials
        self.counts, self.waiting = [0] * len(trials), [0] * len(trials)
        for trial in trials:
            walk.reasons |= trial.reasons

    def become(self, counts: tuple[int, ...], waiting: tuple[int, ...] = ()) -> None:
        """Add or drop so many that these are in flight, and of these so many wait for their gradients of weights."""
        for c, trial in enumerate(self.trials):
            change = (waiting[c] if waiting else 0) - self.waiting[c]
            self.waiting[c] += change
            if change:
                self.walk.alloc(AWAITING, change * trial.awaiting, WHY_AWAITING)
        for c, trial in enumerate(self.trials):
            change = counts[c] - self.counts[c]
            if change:
                self.walk.add(trial.by_path, trial.saved, change)
            self.counts[c] = counts[c]

    def took_off(self, chunk: int) -> None:
        """The walk itself has run one forward."""
        self.counts[chunk] += 1

    def landed(self, chunk: int) -> None:
        """The walk itself has run one back."""
        self.counts[chunk] -= 1


def merged(plans: list[Plan]) -> Plan:
    """The plan of a whole rank: the chunks' parts one after the other."""
    first, last = plans[0], plans[-1]
    if len(plans) == 1:
        return first
    parts = tuple(part for plan in plans for part in plan.parts)
    return Plan(parts, first.settings, first.ids, frozenset().union(*(p.kept for p in plans)), first.leaf, first.arrival, last.sends)
