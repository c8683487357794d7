"""Every way to spread a training run over its cards: those that fit, by relative cost, and why the best is best. Answers as data.

Ways are walked in the order of their cost until enough of them fit, so that what is not walked is dearer than all that are shown; after that,
those alone that may need less than all before, which complete the front of memory against cost. A bound from below on weights, states and the least
that forward keeps (`memcalc.whatif.candidates.least_bytes`) takes out what cannot fit, or cannot be on the front. A way fits when allocated
bytes and what stands outside the allocator do; the first, and those that are worth a trial, are played through the caching allocator as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.models.read import read_model
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.candidates import Model, Way, allowed, least_bytes, model_of, ways
from memcalc.whatif.fit import IMPOSSIBLE, Room, needs, plays, room_for
from memcalc.whatif.sweep import outside_bytes

ENGINES = ("megatron", "fsdp2", "deepspeed", "ddp")
TOP, MAX_WALKS, REACH = 10, 64, 1.25
"""Ways that are looked for; groups of ways that are walked in search of them and of the front; and how far that goes, over the cost of the first."""

TRIALS = 3


class Fitting(NamedTuple):
    """One way that fits.

    Attributes:
        way: which.
        run: in full.
        need_bytes: the least that it needs on the most loaded rank.
        on_front: no other needs less at no higher cost.
        played: the caching allocator was found to get by, too.
    """

    way: Way
    run: Run
    need_bytes: int
    on_front: bool = False
    played: bool = False


class Plans(NamedTuple):
    """The answer.

    Attributes:
        model, room, gpus: what is planned for.
        fitting: by cost: as many as were asked for, then those that need less than all before, up to `REACH` times the cost of the first.
        trials: indices of those worth a real trial: the cheapest, and the cheapest of other kinds.
        top: how many were asked for.
        num_ways, num_pruned, num_walked, num_refused: combinations; those out by the bound; groups walked; groups that cannot be.
        num_left: ways that were left out when as many groups were walked as may be; 0: what is shown is complete.
        num_failed: ways that fit, and that the caching allocator did not get by with.
        reasons: why not, and how often.
    """

    model: Model
    room: Room
    fitting: tuple[Fitting, ...]
    trials: tuple[int, ...]
    top: int
    num_ways: int
    num_pruned: int
    num_walked: int
    num_refused: int
    num_left: int
    num_failed: int
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
    bounds = {way: least_bytes(way, model) + floor for way in every}
    able = sorted((way for way in every if bounds[way] <= room.room_bytes), key=lambda way: way.cost)
    search = Search(run, model, room)
    fitting, failed = played_first(search.best(able, bounds, top), lambda one: plays(resolve(one.run), room.room_bytes))
    kinds = {kind_of(one.way): i for i, one in reversed(list(enumerate(fitting))) if one.played}
    return Plans(
        model,
        room,
        tuple(fitting),
        tuple(sorted(kinds.values())),
        top=top,
        num_ways=len(every),
        num_pruned=len(every) - len(able),
        num_walked=search.walked,
        num_refused=sum(search.reasons.values()),
        num_left=search.left,
        num_failed=failed,
        reasons=search.reasons,
    )


def kind_of(way: Way) -> tuple[object, ...]:
    """What a trial tells apart: who shards, and the degrees that decide what ranks exchange."""
    return way.engine, way.tp, way.pp, way.cp


def played_first(fitting: Iterable[Fitting], fits: Callable[[Fitting], bool]) -> tuple[list[Fitting], int]:
    """The cheapest of each of the first kinds is played; without those that do not get by, of which it is said how many."""
    found: list[Fitting] = []
    kinds: set[tuple[object, ...]] = set()
    failed = 0
    for one in fitting:
        new = kind_of(one.way) not in kinds and len(kinds) < TRIALS
        if new and not fits(one):
            failed += 1
            continue
        if new:
            kinds.add(kind_of(one.way))
        found.append(one._replace(played=new))
    return _front(found), failed


class Search:
    """Walks groups of ways: those that differ in the batch alone are one walk over an array.

    Attributes:
        walked: groups, so far.
        left: ways that were not looked at because so many were.
        reasons: why ways cannot be, and how often.
    """

    def __init__(self, run: Run, model: Model, room: Room) -> None:
        self.run, self.model, self.room = run, model, room
        self.walked = self.left = 0
        self.reasons: dict[str, int] = {}
        self._needs: dict[tuple[object, ...], dict[int, int]] = {}

    def best(self, able: list[Way], bounds: Mapping[Way, float], top: int) -> list[Fitting]:
        """The first so many that fit, in the order given; then those that need less than all before, by a bound from below at first."""
        batches: dict[tuple[object, ...], list[int]] = {}
        for way in able:
            batches.setdefault(way.group, []).append(way.micro_batch)
        found: list[Fitting] = []
        least = self.room.room_bytes + 1
        for way in able:
            most = self.room.room_bytes if len(found) < top else least - 1
            if len(found) >= top and way.cost > REACH * found[0].way.cost:
                break
            if bounds[way] > most or self._hopeless(way, most):
                continue
            if way.group not in self._needs and self.walked >= MAX_WALKS:
                self.left += 1
                continue
            need = self.need_of(way, sorted(batches[way.group]))
            if need <= most:
                found.append(Fitting(way, self.of(way), need))
                least = min(least, need)
        return found

    def need_of(self, way: Way, batches: list[int]) -> int:
        """The least need of a way, with all batches of its group."""
        if way.group not in self._needs:
            self._needs[way.group] = self.walk(way, batches)
        return self._needs[way.group].get(way.micro_batch, IMPOSSIBLE)

    def of(self, way: Way) -> Run:
        """The run of a way."""
        return read_run(self.run, **way.keys(), seq_len=self.model.seq_len)

    def walk(self, way: Way, batches: Sequence[int]) -> dict[int, int]:
        """The least need of a group for each batch; none where it cannot be."""
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

    def _hopeless(self, way: Way, most: int) -> bool:
        """Whether the same with more recomputation is known to need more than that, too."""
        if way.group in self._needs or way.recompute == "full":
            return False
        known = (self._needs.get(way._replace(recompute=more).group, {}).get(way.micro_batch, 0) for more in ("selective", "full") if more != way.recompute)
        return max(known) > most


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
