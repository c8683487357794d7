"""A model over several cards and the host, layer by layer, as ``device_map`` places it: one process, which runs the layers in turn.

Source: transformers 5, integrations/accelerate.py, ``get_balanced_memory`` and ``infer_auto_device_map``; accelerate, big_modeling.py,
``dispatch_model``, hooks.py, ``AlignDevicesHook`` (weights on the host come to the first card for the time of their layer).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from memcalc.engine import step
from memcalc.engine.plan import Plan, make_plan
from memcalc.engine.result import Term
from memcalc.engine.settings import settings_of
from memcalc.engine.strategies import strategy_for
from memcalc.engine.walk import Reason, Walk, Walked
from memcalc.errors import InputError
from memcalc.formulas import overheads
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.model import Block
from memcalc.specs.run import Run
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES, parse_bytes

HOST, DISK = -1, -2
"""Places that are no card."""
UNBOUNDED = 1 << 60
"""Bytes of a place that nobody limits."""
BUFFER = 1.25
"""Of the largest layer: what each card but the last gets beyond its even share."""
ONE_CARD, QUANTISED = 0.9, 0.9
"""Of a single card's free memory that weights may take; of all memory where bitsandbytes packs them."""
SOURCE = "transformers, integrations/accelerate.py"


class Unit(NamedTuple):
    """What is not split: a layer, a table, a norm, the head.

    Attributes:
        block: one repetition of it.
        bytes: of its weights.
        largest: of its largest weight.
    """

    block: Block
    bytes: int
    largest: int


class Placed(NamedTuple):
    """Where all units are, in the order in which they run.

    Attributes:
        units: all.
        places: the card of each, or `HOST` or `DISK`.
    """

    units: tuple[Unit, ...]
    places: tuple[int, ...]

    def at(self, place: int) -> list[Unit]:
        """Those of one place."""
        return [unit for unit, where in zip(self.units, self.places, strict=True) if where == place]


def place(job: Job) -> Placed:
    """Where ``device_map`` puts everything.

    Raises:
        InputError: no card is named and no ``max_memory`` is given.
    """
    units = tuple(_units(job))
    tied = job.model.tied and not any(unit.bytes for unit in units if unit.block.role == "head")
    room = _room(job, units)
    places, used, here = list[int](), dict.fromkeys(room, 0), 0
    order = [*sorted(key for key in room if key >= 0), *(key for key in (HOST, DISK) if key in room)]
    for i, unit in enumerate(units):
        while True:
            where = order[here]
            spare = max((u.bytes for u in units[i + 1 :]), default=0) if where in (order[0], HOST) else 0
            if where == DISK or used[where] + unit.bytes <= room[where] - spare:
                break
            here += 1
        used[where] += unit.bytes
        places.append(where)
    if tied:
        places[-1] = places[next(i for i, unit in enumerate(units) if unit.block.role == "embedding")]
    return Placed(units, tuple(places))


def walk_mapped(job: Job, *, detailed: bool = True) -> list[Walked]:
    """Every card that has something: its weights, the caches of what runs there, and what running it needs."""
    found = place(job)
    cards = sorted({where for where in found.places if where >= 0}) or [0]
    strategy_class = strategy_for(job)
    settings = strategy_class.settings(job, settings_of(job))
    walked, arrival, host = list[Walked](), None, host_terms(job)
    for card in cards:
        mine = [where == card or (card == cards[0] and where < 0) for where in found.places]
        blocks = _joined([unit.block for unit, own in zip(found.units, mine, strict=True) if own])
        begins = any(block.role == "embedding" for block in blocks)
        if not begins and arrival is None:
            arrival = _first(job).leaves()
        plan = make_plan(
            job, blocks, settings, keep_gradients=False, accumulate=False, arrival=None if begins else arrival, sends=not mine[-1]
        )  # fmt: skip
        arrival = plan.leaves() if begins and plan.parts else arrival
        walk, strategy = Walk(detailed=detailed), strategy_class(job, plan)
        strategy.resident(walk)
        away = [unit for unit, where, own in zip(found.units, found.places, mine, strict=True) if own and where < 0]
        _leave(walk, away, job.run.dtype)
        walk.instant("load")
        with walk.window("prefill"):
            largest = max((unit.largest for unit in away), default=0)
            if largest:
                walk.alloc("weights/from the host", largest, Reason("largest weight of a layer that is on the host", {}, "accelerate, AlignDevicesHook"))
            step.forward(walk, plan, strategy)
        if largest:
            walk.free("weights/from the host", largest)
        step.let_go(walk, plan)
        walk.instant("decode")
        walked.append(Walked({"device": card}, 1, walk, plan, strategy, host=host))
    return walked


def host_terms(job: Job) -> tuple[Term, ...]:
    """Weights that wait on the host."""
    size = sum(unit.bytes for unit in place(job).at(HOST))
    return (Term("host/weights", size, "layers that no card has room for", {}, SOURCE),) if size else ()


def said(job: Job) -> str:
    """In words: how many layers are where."""
    found = place(job)

    def layers(where: int) -> int:
        return sum(unit.block.role == "layer" for unit in found.at(where))

    parts = [f"{layers(where)} layers on card {where}" for where in sorted({w for w in found.places if w >= 0})]
    parts += [f"{layers(where)} on the {name}" for where, name in ((HOST, "host"), (DISK, "disk")) if found.at(where)]
    return f"device_map {job.run.loading.device_map}: {', '.join(parts)}"


def check_mapped(run: Run) -> None:
    """What one process over several cards cannot be.

    Raises:
        InputError: it is that.
    """
    if run.loading.device_map is None:
        return
    if run.task != "inference" or run.code != "transformers":
        raise InputError("layers are placed so in task inference with code transformers; leave it out", where="loading.device_map")
    if max(run.sharding.tp, run.sharding.pp, run.sharding.cp, run.sharding.dp or 1) > 1:
        raise InputError("one process holds all cards: give --gpus, and no tp, pp, cp or dp", where="loading.device_map")
    if run.quantization is not None:
        raise InputError("layers are placed by what they hold in the dtype they compute in; leave out quantization", where="loading.device_map")
    if run.new_tokens or run.generation.assistant_model is not None:
        raise InputError("tokens after the prompt are not walked through over several cards; leave out new_tokens", where="loading.device_map")


# ---------------------------------------------------------------------- inside
def _units(job: Job) -> Iterator[Unit]:
    for block in job.model.blocks:
        sizes = [int(numel(weight.shape)) * DTYPE_BYTES[weight.dtype or job.run.dtype] for _, weight in block.module.weights()]
        for _ in range(block.repeat):
            yield Unit(replace(block, repeat=1), sum(sizes), max(sizes, default=0))


def _joined(blocks: list[Block]) -> tuple[Block, ...]:
    """Equal ones that follow each other as one that repeats."""
    found: list[Block] = []
    for block in blocks:
        if found and replace(found[-1], repeat=1) == block:
            found[-1] = replace(found[-1], repeat=found[-1].repeat + 1)
        else:
            found.append(block)
    return tuple(found)


def _first(job: Job) -> Plan:
    """The plan of what stands before the first layer, for cards that begin with its output."""
    strategy_class = strategy_for(job)
    settings = strategy_class.settings(job, settings_of(job))
    return make_plan(job, job.model.blocks[:2], settings, keep_gradients=False, accumulate=False, sends=True)


def _leave(walk: Walk, away: list[Unit], dtype: str) -> None:
    """Weights of the host are not on the card that runs them."""
    for unit in away:
        for path, weight in unit.block.module.weights(f"{unit.block.path}/"):
            name = next((p for p in (f"weights/{path}", f"weights/{unit.block.path}") if p in walk.by_path), f"weights/{path}")
            walk.free(name, int(numel(weight.shape)) * DTYPE_BYTES[weight.dtype or dtype])


def _room(job: Job, units: tuple[Unit, ...]) -> dict[int, int]:
    """What each place offers to weights."""
    asked = job.run.loading
    given = {_key(key): parse_bytes(str(size), where="loading.max_memory") for key, size in (asked.max_memory or {}).items()}
    count = job.run.hardware.gpus or 1
    if job.run.hardware.gpu is not None:
        free = find_gpu(job.run.hardware.gpu).capacity_bytes - overheads.CUDA_CONTEXT_BYTES
        room = {i: min(free, given.get(i, free)) for i in range(count)}
    elif any(key >= 0 for key in given):
        room = {key: size for key, size in given.items() if key >= 0}
    else:
        raise InputError("layers are placed by what cards offer: give --gpu, or max_memory", where="loading.device_map")
    room = {key: size for key, size in room.items() if not given or key in given}
    room |= {HOST: given.get(HOST, UNBOUNDED), DISK: UNBOUNDED}
    cards = sorted(key for key in room if key >= 0)
    if asked.device_map != "sequential":
        _balance(room, cards, units, low_zero=asked.device_map == "balanced_low_0" and len(cards) > 1, is_given=bool(given))
    if job.run.quantization is not None and job.run.quantization.startswith(("nf4", "int8")):
        room = {key: int(size * QUANTISED) if key >= 0 else size for key, size in room.items()}
    return room


def _balance(room: dict[int, int], cards: list[int], units: tuple[Unit, ...], *, low_zero: bool, is_given: bool) -> None:
    """An even share and a buffer on every card but the last, which keeps all of its memory; a single card gives nine tenths."""
    if len(cards) == 1 and not is_given:
        room[cards[0]] = int(room[cards[0]] * ONE_CARD)
    total = sum(unit.bytes for unit in units)
    layers = max((u.bytes for u in units if u.block.role in ("layer", "tower")), default=0)
    share = total // (len(cards) - 1 if low_zero else len(cards)) + int(BUFFER * max(layers, *(u.largest for u in units)))
    for card in cards[:-1]:
        room[card] = room[card] if low_zero and card == 0 else min(share, room[card])
    if low_zero:
        room[0] = min(max(0, total - sum(room[card] for card in cards[1:])), room[0])


def _key(key: Any) -> int:
    if str(key) == "cpu":
        return HOST
    if str(key).isdigit():
        return int(key)
    raise InputError(f"{key!r} is no place; accepted: numbers of cards, and cpu", where="loading.max_memory")


__all__ = ["Placed", "Unit", "check_mapped", "host_terms", "place", "said", "walk_mapped"]
