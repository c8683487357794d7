"""How far a run can go on its card: the largest length, batch, tokens per batch, rank of adapters, number of layers kept. Answers as data.

Each answer has two figures. Its *bound*: one unit more does not fit, because what is allocated at the peak and what stands outside the allocator
are more than the card may give; found exactly, in arrays. What is *safe*: the highest up to the bound for which the step, played through the
caching allocator within the card, gets by, with all that is looked at below. The two are one where the card is not nearly full of what stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from memcalc.engine.estimate import walk_ranks
from memcalc.engine.ranks import num_layers
from memcalc.engine.resolve import SERVERS, resolve
from memcalc.errors import InputError
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.fit import Room, highest_between, largest, need, needs, plays, room_for
from memcalc.whatif.sweep import bounds_of

if TYPE_CHECKING:
    from memcalc.whatif.fit import Bools, Ints

MAX_LENGTH, MAX_BATCH = 1 << 27, 1 << 20
"""No longer sequence and no larger batch is looked for."""

MAX_LENGTHS = 4096
"""Lengths for which the largest batch is found; of longer sequences, evenly spread ones."""


LOOKS, GRAIN = 6, 256
"""Values up to a bound that are played, and into how many parts of it the last step is: a play takes a tenth of a second."""


class Limit(NamedTuple):
    """How far one key can go, the others as they are.

    Attributes:
        key: ``seq_len``, ``micro_batch``, ``lora.r`` or ``layers kept``.
        asked: its value in the run.
        bound: the largest for which the least need is within the card; 0 where none is.
        safe: the largest up to which the caching allocator gets by, too.
        need_bytes, above_bytes: the least need at the bound, and at one unit more (None where there is none more).
        instant: when the peak is at one unit more than the bound.
        terms: the largest kinds then, with their bytes.
        step: the unit.
        stop: why there is none more where memory is not what ends it.
    """

    key: str
    asked: int
    bound: int
    safe: int
    need_bytes: int
    above_bytes: int | None
    instant: str
    terms: tuple[tuple[str, int], ...]
    step: int = 1
    stop: str = ""


class Tokens(NamedTuple):
    """Tokens of a batch that holds any number of equally long sequences.

    Attributes:
        bound: as many tokens fit in whatever shape, up to `seq_len`.
        safe: as many as the caching allocator gets by with in the shapes that are played: the longest sequences, and those that set the bound.
        seq_len: the longest sequence looked at.
        worst: the batch and length of the smallest shape that does not fit.
        every: lengths are looked at in steps of so many.
    """

    bound: int
    safe: int
    seq_len: int
    worst: tuple[int, int]
    every: int


class Probe(NamedTuple):
    """One trial of a cautious engineer.

    Attributes:
        micro_batch: to try.
        allocated_bytes: what ``torch.cuda.max_memory_allocated`` should read.
        fits: whether it should go through.
    """

    micro_batch: int
    allocated_bytes: int
    fits: bool


class Limits(NamedTuple):
    """All answers for one run.

    Attributes:
        job: the run as resolved.
        room: what it may take.
        answers: key by key.
        tokens: for batches counted in tokens; None where not a single sequence fits.
        probes: the trials that would find the largest batch, with their expected readings.
    """

    job: Job
    room: Room
    answers: tuple[Limit, ...]
    tokens: Tokens | None
    probes: tuple[Probe, ...]


def limits(run: Run, *, limit_bytes: int | None = None, margin: float = 0.0) -> Limits:
    """How far a run can go.

    Args:
        run: with a card, unless a limit is given.
        limit_bytes: what the most loaded rank may take.
        margin: share of the card that must stay free.

    Raises:
        InputError: no card and no limit, or the run cannot be.
    """
    room = room_for(run, limit_bytes=limit_bytes, margin=margin)
    job = resolve(run)
    if job.run.code in SERVERS:
        return _served(job, room)
    length = _of_size(job, room, "seq_len", cap=MAX_LENGTH, step=granule(job))
    batch = _of_size(job, room, "micro_batch", cap=MAX_BATCH, step=1)
    rank, kept = _of_rank(job, room), _of_kept(job, room)
    tokens = _of_tokens(job, room) if batch.bound else None
    return Limits(job, room, tuple(a for a in (length, batch, rank, kept) if a is not None), tokens, tuple(probes(job, room, batch.bound)))


def _served(job: Job, room: Room) -> Limits:
    """Of a server: the longest sequence and the most sequences that the pool holds, which no allocator has a say in."""
    from memcalc.whatif.served import at_most

    if room.room_bytes < find_gpu(job.run.hardware.gpu or "").capacity_bytes:
        raise InputError(f"{job.run.code} takes a share of its card: say how large, not a limit or margin", where="code")
    found = at_most(job)
    rank, serving = found.answer.most_loaded, found.answer.serving
    assert serving is not None
    cache = tuple((kind, n) for kind, n in (("kv_cache", serving.kv_cache_bytes), ("weights", rank.instants[0].allocated_bytes)))
    need_bytes = rank.device_bytes
    answers = (
        Limit("seq_len", job.seq_len, found.largest_model_len, found.largest_model_len, need_bytes, None, "decode", cache, stop="the pool is full"),
        Limit("micro_batch", job.micro_batch, found.num_sequences, found.num_sequences, need_bytes, None, "decode", cache, stop="the pool is full"),
    )
    return Limits(job, room, answers, None, ())


def granule(job: Job) -> int:
    """Lengths are a multiple of this: the ranks that cut sequences."""
    mesh = job.mesh
    halves = 2 if job.run.code == "megatron" and mesh.cp > 1 else 1
    return int(mesh.cp * halves * (mesh.tp if mesh.sp else 1))


def probes(job: Job, room: Room, most: int) -> Iterator[Probe]:
    """Batches to try in turn: one, doubled until one does not fit, then the middles between the last that fits and the first that does not."""
    low, high = 0, 1
    while True:
        yield _probe(job, room, high)
        if high > most:
            break
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        yield _probe(job, room, middle)
        low, high = (middle, high) if middle <= most else (low, middle)


# ---------------------------------------------------------------------- inside
def _probe(job: Job, room: Room, batch: int) -> Probe:
    here = replace(job, micro_batch=batch)
    allocated = max(int(shot.total) for one in walk_ranks(here, detailed=False) for shot in one.walk.instants.values())
    return Probe(batch, allocated, need(here) <= room.room_bytes)


def _of_size(job: Job, room: Room, key: str, *, cap: int, step: int) -> Limit:
    import numpy as np

    def fits(values: Ints) -> Bools:
        other = np.full_like(values, job.seq_len if key == "micro_batch" else job.micro_batch)
        pair = (values, other) if key == "micro_batch" else (other, values)
        return needs(job, *pair) <= room.room_bytes

    bound = largest(fits, cap=cap, step=step, marks=bounds_of(job) if key == "seq_len" else ())
    safe = step * _safe(lambda n: plays(_with(job, key, n * step), room.room_bytes), bound // step)
    return _limit(key, getattr(job, key), bound, safe, lambda n: _with(job, key, n), step=step)


def _with(job: Job, key: str, value: int) -> Job:
    return replace(job, micro_batch=value) if key == "micro_batch" else replace(job, seq_len=value)


def _safe(fits: Callable[[int], bool], bound: int) -> int:
    """The highest up to a bound such that it, and all that is looked at below it, is played through, and a little more is not.

    Where blocks find a place is a matter of their sizes, so a smaller batch may fail where a larger one goes through.
    """
    low = 0
    for value in sorted({bound * i // LOOKS for i in range(1, LOOKS + 1)} - {0}):
        if not fits(value):
            return highest_between(fits, low, value, unit=max(1, bound // GRAIN))
        low = value
    return low


def _limit(key: str, asked: int, bound: int, safe: int, at: Callable[[int], Job], *, step: int = 1, most: int | None = None) -> Limit:
    above, there, above_bytes, stop = bound + step, None, None, "that is all"
    if most is None or above <= most:
        try:
            there = at(above)
            above_bytes, stop = need(there), ""
        except InputError as error:
            there, stop = None, str(error)
    shown = there or at(bound)
    walked = walk_ranks(shown)
    walk = max((one.walk for one in walked), key=lambda w: max(shot.total for shot in w.instants.values()))
    name, shot = max(walk.instants.items(), key=lambda item: item[1].total)
    kinds: dict[str, int] = {}
    for path, num_bytes in shot.by_path.items():
        kinds[path.split("/")[0]] = kinds.get(path.split("/")[0], 0) + num_bytes
    terms = tuple(sorted(kinds.items(), key=lambda kind: -kind[1])[:3])
    return Limit(key, asked, bound, safe, need(at(bound)) if bound else 0, above_bytes, name, terms, step, stop)


def _of_rank(job: Job, room: Room) -> Limit | None:
    """The rank of adapters; their tensors are other ones for each, so it is found by bisection."""
    if job.run.lora is None:
        return None

    def at(rank: int) -> Job:
        return resolve(read_run(job.run, lora_r=rank))

    most = job.model.hidden_size or 8192
    bound = highest_between(lambda r: need(at(r)) <= room.room_bytes, 0, most)
    safe = _safe(lambda r: plays(at(r), room.room_bytes), bound)
    return _limit("lora.r", job.run.lora.r, bound, safe, at, most=most)


def _of_kept(job: Job, room: Room) -> Limit | None:
    """Layers of each pipeline stage's chunk that keep their activations, where the code recomputes some of them (Megatron's recompute_method block)."""
    if job.run.code != "megatron" or job.run.task == "inference":
        return None
    layers = -(-num_layers(job.model) // (job.mesh.pp * job.mesh.vpp))

    def at(kept: int) -> Job:
        if kept >= layers:
            return resolve(read_run(job.run, recompute="none", recompute_method=None, recompute_num_layers=None))
        return resolve(read_run(job.run, recompute="full", recompute_method="block", recompute_num_layers=layers - kept))

    try:
        if need(at(0)) > room.room_bytes:
            return _limit("layers kept", _kept(job, layers), 0, 0, at, most=layers)
        bound = highest_between(lambda n: need(at(n)) <= room.room_bytes, 0, layers)
    except InputError:
        return None
    safe = _safe(lambda n: plays(at(n), room.room_bytes), bound)
    return _limit("layers kept", _kept(job, layers), bound, safe, at, most=layers)


def _kept(job: Job, layers: int) -> int:
    run = job.run
    if run.recompute != "full":
        return layers
    return max(layers - (run.recompute_num_layers or 1), 0) if run.recompute_method == "block" else 0


def _of_tokens(job: Job, room: Room) -> Tokens:
    """For every length the smallest batch that does not fit, by bisection of all at once; the smallest of those shapes sets the limit."""
    import numpy as np

    unit = granule(job)
    every = unit * max(1, -(-(job.seq_len // unit) // MAX_LENGTHS))
    lengths = np.arange(every, job.seq_len + 1, every, dtype=np.int64)
    if not len(lengths):
        lengths = np.asarray([job.seq_len], dtype=np.int64)
    low, high = np.zeros_like(lengths), np.ones_like(lengths)
    rising = np.flatnonzero(needs(job, high, lengths) <= room.room_bytes)
    while len(rising):
        low[rising], high[rising] = high[rising], high[rising] * 2
        rising = rising[(needs(job, high[rising], lengths[rising]) <= room.room_bytes) & (high[rising] < MAX_LENGTH)]
    while (open_ := np.flatnonzero(high - low > 1)).size:
        middle = (low[open_] + high[open_]) // 2
        able = needs(job, middle, lengths[open_]) <= room.room_bytes
        low[open_], high[open_] = np.where(able, middle, low[open_]), np.where(able, high[open_], middle)
    tokens = high * lengths
    i = int(tokens.argmin())
    most = int(tokens[i]) - 1
    shapes = {int(lengths[i]), int(lengths[-1])}

    def fits(tokens: int) -> bool:
        shown = [replace(job, micro_batch=tokens // length, seq_len=length) for length in shapes if tokens >= length]
        return all(plays(one, room.room_bytes) for one in shown)

    return Tokens(most, _safe(fits, most), int(lengths[-1]), (int(high[i]), int(lengths[i])), every)


__all__ = ["Limit", "Limits", "Probe", "Tokens", "granule", "limits", "probes"]
