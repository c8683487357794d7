"""A model over several cards and the host, layer by layer, as ``device_map`` places it: one process, which runs the layers in turn.

A micro-batch goes through all cards and comes back before the next begins, so that each card's step is that of a pipeline stage with nothing
else in flight.

Source: accelerate, big_modeling.py, ``dispatch_model``, hooks.py, ``AlignDevicesHook`` (weights on the host come to the first card for the time of
their layer; what the model returns goes back to where its input was).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memcalc.code.context import Settings
from memcalc.engine import step
from memcalc.engine.evaluation import evaluate
from memcalc.engine.generation import generate
from memcalc.engine.placement import DISK, HOST, Placed, Unit, place
from memcalc.engine.plan import Plan, make_plan
from memcalc.engine.result import Term
from memcalc.engine.settings import settings_of
from memcalc.engine.strategies import Strategy, strategy_for
from memcalc.engine.walk import Reason, Walk, Walked
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.model import Block
from memcalc.specs.run import Run
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES

RETURNED = "activations/logits, returned to the first card"
SOURCE = "accelerate, hooks.py, AlignDevicesHook"


def walk_mapped(job: Job, *, detailed: bool = True) -> list[Walked]:
    """Every card that has something: its weights, and what running the layers there needs, in a step or in a prefill and what follows it."""
    found = place(job)
    host = host_terms(found)
    cards = _Cards(job, found)
    walked = list[Walked]()
    for card in cards.numbers:
        walk, plan, strategy = Walk(detailed=detailed), *cards.begin(card)
        if job.run.task == "inference":
            _infer(walk, cards, card, plan, strategy)
        else:
            step.train(walk, plan, strategy, accumulated=job.run.grad_accum > 1, aside=cards.aside(card))
            if job.run.evaluation is not None:
                evaluated = evaluate(job, job.run.evaluation, detailed=detailed, plan_of=cards.plan_of(card), keeps=card == cards.numbers[0])
                walk.instants |= evaluated.instants
                walk.reasons |= evaluated.reasons
                walk.records |= evaluated.records
        walked.append(Walked({"device": card}, 1, walk, plan, strategy, host=host))
    return walked


def host_terms(found: Placed) -> tuple[Term, ...]:
    """Weights that wait on the host."""
    size = sum(unit.bytes for unit in found.at(HOST))
    return (Term("host/weights", size, "layers that no card has room for", {}, "transformers, integrations/accelerate.py"),) if size else ()


def said(job: Job) -> str:
    """In words: how many layers are where."""
    found = place(job)

    def layers(where: int) -> int:
        return sum(unit.block.role == "layer" for unit in found.at(where))

    parts = [f"{layers(where)} layers on card {where}" for where in sorted({w for w in found.places if w >= 0})]
    parts += [f"{layers(where)} on the {name}" for where, name in ((HOST, "host"), (DISK, "disk")) if found.at(where)]
    cards = "" if job.run.hardware.gpu is not None or job.run.loading.max_memory else ", as if these had room for them"
    return f"device_map {job.run.loading.device_map}: {', '.join(parts)}{cards}"


def check_mapped(run: Run) -> None:
    """What one process over several cards cannot be.

    Raises:
        InputError: it is that.
    """
    if run.loading.device_map is None:
        return
    where = "loading.device_map"
    if run.task not in ("train", "inference") or run.code != "transformers":
        raise InputError("layers are placed so in tasks train and inference with code transformers; leave it out", where=where)
    sharding = run.sharding
    if max(sharding.tp, sharding.pp, sharding.cp, sharding.dp or 1) > 1 or sharding.engine not in (None, "ddp"):
        raise InputError("one process holds all cards: give --gpus, and neither an engine nor tp, pp, cp or dp", where=where)
    if run.generation.assistant_model is not None:
        raise InputError("an assistant is not walked through over several cards; leave out assistant_model", where=where)
    if run.checkpoint_save:
        raise InputError("saving is not walked through over several cards; leave checkpoint_save out", where=where)


# ---------------------------------------------------------------------- inside
class _Cards:
    """What each card runs.

    Attributes:
        numbers: of the cards that have something.
        returns: what the last layer gives is on another card than the first, and goes back there.
    """

    def __init__(self, job: Job, found: Placed) -> None:
        self.job, self.found = job, found
        self.strategy = strategy_for(job)
        self.settings = self.strategy.settings(job, settings_of(job))
        self.numbers = sorted({where for where in found.places if where >= 0}) or [0]
        self.returns = found.places[-1] not in (self.numbers[0], HOST, DISK)

    def runs(self, card: int) -> list[bool]:
        """Of each unit, whether it runs there; what is on the host runs on the first card."""
        return [where == card or (card == self.numbers[0] and where < 0) for where in self.found.places]

    def blocks(self, card: int) -> tuple[Block, ...]:
        """What runs there."""
        return _joined([unit.block for unit, own in zip(self.found.units, self.runs(card), strict=True) if own])

    def away(self, card: int) -> list[Unit]:
        """What runs there and is on the host."""
        return [unit for unit, where, own in zip(self.found.units, self.found.places, self.runs(card), strict=True) if own and where < 0]

    def begin(self, card: int) -> tuple[Plan, Strategy]:
        """A card's plan, and the engine around it."""
        plan = self.plan_of(card)(self.job, self.settings)
        return plan, self.strategy(self.job, plan)

    def plan_of(self, card: int) -> Callable[[Job, Settings], Plan]:
        """Makes the plan of a card."""
        blocks, sends = self.blocks(card), not self.runs(card)[-1]
        begins = any(block.role == "embedding" for block in blocks)

        def plan(job: Job, settings: Settings) -> Plan:
            front = None if begins else make_plan(job, job.model.blocks[:2], settings, keep_gradients=False, accumulate=False, sends=True)
            return make_plan(
                job,
                blocks,
                settings,
                keep_gradients=settings.records and self.strategy.keep_gradients,
                accumulate=job.run.grad_accum > 1 and self.strategy.accumulates_whole,
                arrival=None if front is None else front.leaves(),
                sends=sends,
            )

        return plan

    def aside(self, card: int) -> Callable[[Walk], None] | None:
        """What happens on a card when the last layer is through."""
        if card != self.numbers[0] or not self.returns:
            return None
        return lambda walk: walk.touch(RETURNED, self._logits_bytes, Reason("logits, in the dtype of the model", {}, SOURCE))

    @property
    def _logits_bytes(self) -> int:
        """Of what the model returns beside the loss, none where the loss is fused with the head."""
        head = next((block.module for block in self.job.model.blocks if block.role == "head"), None)
        if head is None or self.settings.loss != "cross_entropy" or not hasattr(head, "proj"):
            return 0
        dtype = self.settings.autocast or self.settings.dtype
        return int(self.settings.batch * self.settings.seq * head.proj.outputs.size * DTYPE_BYTES[dtype])


def _infer(walk: Walk, cards: _Cards, card: int, plan: Plan, strategy: Strategy) -> None:
    """The instants ``load``, ``prefill``, ``decode``, and with new tokens ``generate``."""
    job, away = cards.job, cards.away(card)
    strategy.resident(walk)
    _leave(walk, away, job.run.dtype)
    walk.instant("load")
    largest = max((unit.largest for unit in away), default=0)
    with walk.window("prefill"):
        if largest:
            walk.alloc("weights/from the host", largest, Reason("largest weight of a layer that is on the host", {}, SOURCE))
        step.forward(walk, plan, strategy)
    if largest:
        walk.free("weights/from the host", largest)
    step.let_go(walk, plan)
    walk.instant("decode")
    if job.run.new_tokens:
        generate(walk, replace(job, model=replace(job.model, blocks=cards.blocks(card))), None, begins=plan.arrival is None, ends=not plan.sends)


def _joined(blocks: list[Block]) -> tuple[Block, ...]:
    """Equal ones that follow each other as one that repeats."""
    found: list[Block] = []
    for block in blocks:
        if found and replace(found[-1], repeat=1) == block:
            found[-1] = replace(found[-1], repeat=found[-1].repeat + 1)
        else:
            found.append(block)
    return tuple(found)


def _leave(walk: Walk, away: list[Unit], dtype: str) -> None:
    """Weights of the host are not on the card that runs them."""
    for unit in away:
        for path, weight in unit.block.module.weights(f"{unit.block.path}/"):
            name = next((p for p in (f"weights/{path}", f"weights/{unit.block.path}") if p in walk.by_path), f"weights/{path}")
            walk.free(name, int(numel(weight.shape)) * DTYPE_BYTES[weight.dtype or dtype])
