"""Every way to spread a training run over its cards: those that fit, by relative cost, and why the best is best. Answers as data.

Ways are walked in the order of their cost until enough of them fit, so that what is not walked is dearer than all that are shown. Before that a
bound from below on weights, states and the least that forward keeps takes out what cannot fit (`memcalc.whatif.candidates.least_bytes`). A way
fits when allocated bytes and what stands outside the allocator do; the best is played through the caching allocator as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.models.read import read_model
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.candidates import Model, Way, allowed, least_bytes, model_of, ways
from memcalc.whatif.fit import IMPOSSIBLE, Room, needs, outside_bytes, plays, room_for

ENGINES = ("megatron", "fsdp2", "deepspeed", "ddp")
TOP, MAX_WALKS = 10, 48
"""Ways that are shown, and groups of ways that are walked in search of them."""

TRIALS = 3


class Fitting(NamedTuple):
    """One way that fits.

    Attributes:
        way: which.
        run: in full.
        need_bytes: the least that it needs on the most loaded rank.
        on_front: no other needs less at no higher cost.
    """

    way: Way
    run: Run
    need_bytes: int
    on_front: bool = False


class Plans(NamedTuple):
    """The answer.

    Attributes:
        model, room, gpus: what is planned for.
        fitting: by cost.
        trials: indices of those worth a real trial: the cheapest, and the cheapest of other kinds.
        played: the first of `fitting` was played through the caching allocator; where it did not get by, it is not there.
        num_ways, num_pruned, num_walked, num_refused: combinations; those out by the bound; groups walked; groups that cannot be.
        reasons: why not, and how often.
    """

    model: Model
    room: Room
    fitting: tuple[Fitting, ...]
    trials: tuple[int, ...]
    played: bool
    num_ways: int
    num_pruned: int
    num_walked: int
    num_refused: int
    reasons: dict[str, int]


def plan(run: Run, *, global_batch: int, limit_bytes: int | None = None, margin: float = 0.0, top: int = TOP) -> Plans:
    """The ways of a run that fit.

    Args:
        run: with its cards; keys that it gives (``tp``, ``recompute``, …) are kept.
        global_batch: sequences of one optimizer step, over all ranks.
        limit_bytes, margin: as for `room_for`.
        top: how many are looked for.

    Raises:
        InputError: no card, no number of cards, not a training run, or no way at all.
    """
    room = room_for(run, limit_bytes=limit_bytes, margin=margin)
    gpus = run.hardware.gpus
    if gpus is None:
        raise InputError("how many cards? give --gpus", where="--gpus")
    if run.task != "train":
        raise InputError(f"plans are of training, not of {run.task}", where="task")
    run = run if "attention" in run.model_fields_set else read_run(run, attention="flash_attention_2")
    spec = read_model(run.model)
    seq_len = run.seq_len or min(4096, spec.max_position_embeddings or 4096)
    model = model_of(spec, seq_len=seq_len, global_batch=global_batch, gpus=gpus)
    every = [way for way in ways(model, _engines(run)) if allowed(way, run)]
    if not every:
        raise InputError(f"no way to spread {global_batch} sequences over {gpus} cards with the keys that are given", where="--global-batch")
    floor = outside_bytes(resolve(read_run(run.model, gpu=run.hardware.gpu)))
    able = sorted((way for way in every if least_bytes(way, model) + floor <= room.room_bytes), key=lambda way: way.cost)
    search = _Search(run, model, room)
    fitting = search.best(able, top)
    while fitting and not plays(resolve(fitting[0].run), room.room_bytes):
        fitting = fitting[1:]
    return Plans(
        model, room, tuple(_front(fitting)), trials_of(fitting), bool(fitting), len(every), len(every) - len(able), search.walked, sum(search.reasons.values()),
        search.reasons,
    )  # fmt: skip


def trials_of(fitting: Iterable[Fitting]) -> tuple[int, ...]:
    """The cheapest, then the cheapest whose engine or degrees are others than those of the ones before."""
    found: dict[tuple[object, ...], int] = {}
    for i, one in enumerate(fitting):
        found.setdefault((one.way.engine, one.way.tp, one.way.pp, one.way.cp), i)
    return tuple(found.values())[:TRIALS]


# ---------------------------------------------------------------------- inside
class _Search:
    """Walks groups of ways: those that differ in the batch alone are one walk over an array."""

    def __init__(self, run: Run, model: Model, room: Room) -> None:
        self.run, self.model, self.room = run, model, room
        self.walked = 0
        self.reasons: dict[str, int] = {}
        self._needs: dict[tuple[object, ...], dict[int, int]] = {}

    def best(self, able: list[Way], top: int) -> list[Fitting]:
        """The first so many that fit, in the order given."""
        batches: dict[tuple[object, ...], list[int]] = {}
        for way in able:
            batches.setdefault(way.group, []).append(way.micro_batch)
        found: list[Fitting] = []
        for way in able:
            if len(found) >= top:
                break
            if way.group not in self._needs and (self.walked >= MAX_WALKS or self._hopeless(way)):
                continue
            need = self.need_of(way, sorted(batches[way.group]))
            if need <= self.room.room_bytes:
                found.append(Fitting(way, self.of(way), need))
        return found

    def need_of(self, way: Way, batches: list[int]) -> int:
        """The least need of a way, with all batches of its group."""
        if way.group not in self._needs:
            self._needs[way.group] = self._walk(way, batches)
        return self._needs[way.group].get(way.micro_batch, IMPOSSIBLE)

    def of(self, way: Way) -> Run:
        """The run of a way."""
        return read_run(self.run, **way.keys(), seq_len=self.model.seq_len)

    def _walk(self, way: Way, batches: list[int]) -> dict[int, int]:
        import numpy as np

        try:
            job: Job = resolve(self.of(way))
            some = np.asarray(batches, dtype=np.int64)
            found = needs(job, some, np.full_like(some, self.model.seq_len))
        except InputError as error:
            self.reasons[str(error)] = self.reasons.get(str(error), 0) + 1
            return {}
        self.walked += 1
        return dict(zip(batches, found.tolist(), strict=True))

    def _hopeless(self, way: Way) -> bool:
        """Whether the same with more recomputation does not fit either, at that batch or a smaller one."""
        for more in ("selective", "full"):
            known = self._needs.get(way._replace(recompute=more).group)
            if more != way.recompute and known and min((n for b, n in known.items() if b <= way.micro_batch), default=0) > self.room.room_bytes:
                return True
        return False


def _engines(run: Run) -> tuple[str, ...]:
    if "code" in run.model_fields_set:
        return ("megatron",) if run.code == "megatron" else tuple(engine for engine in ENGINES if engine != "megatron")
    return ENGINES


def _front(fitting: list[Fitting]) -> list[Fitting]:
    """Marked: those that need less than all that cost no more."""
    least, found = IMPOSSIBLE, []
    for one in fitting:
        found.append(one._replace(on_front=one.need_bytes < least))
        least = min(least, one.need_bytes)
    return found
