"""How far a run can go on its card: the largest length, batch, tokens per batch, rank of adapters, number of layers kept. Answers as data.

Each answer has two figures. Its *bound*: one unit more does not fit, because what is allocated at the peak and what stands outside the allocator
are more than the card may give; found exactly, in arrays. What is *safe*: the highest up to the bound for which the step, played through the
caching allocator within the card, gets by, with all that is looked at below; one unit more does not. The two are one where the card is not
nearly full of what stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from memcalc.engine.estimate import walk_ranks
from memcalc.engine.ranks import num_layers
from memcalc.engine.resolve import SERVERS, resolve
from memcalc.errors import InputError
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.fit import Room, granule, highest_between, largest, need, needs, plays, room_for
from memcalc.whatif.sweep import bounds_of, has_fixed_length, outside_bytes
from memcalc.whatif.tokens import Tokens, most_tokens

if TYPE_CHECKING:
    from memcalc.whatif.fit import Bools, Ints

MAX_LENGTH, MAX_BATCH = 1 << 27, 1 << 20
"""No longer sequence and no larger batch is looked for."""

LOOKS = 4
"""Values up to a bound that are played before the last that gets by is closed in on: a play takes a twentieth of a second."""

Played: TypeAlias = "Callable[[int, int], bool]"
"""Whether a batch of a length is played through within the room."""


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
        gets_by: the value in the run lies beyond what is safe, and is played through nevertheless.
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
    gets_by: bool = False


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

    @cache
    def played(micro_batch: int, seq_len: int) -> bool:
        return plays(replace(job, micro_batch=micro_batch, seq_len=seq_len), room.room_bytes)

    length = _as_said(job, room, played) if has_fixed_length(job) else _of_size(job, room, "seq_len", played, cap=MAX_LENGTH, step=granule(job))
    bound, safe = length.bound * job.micro_batch, length.safe * job.micro_batch  # tokens take much the same in any shape
    batch = _of_size(job, room, "micro_batch", played, cap=MAX_BATCH, step=1, near=safe // job.seq_len)
    rank, kept = _of_rank(job, room), _of_kept(job, room)
    tokens = _of_tokens(job, room, played, bound=bound, safe=safe) if batch.bound else None
    return Limits(job, room, tuple(a for a in (length, batch, rank, kept) if a is not None), tokens, probes(job, room, batch.bound))


def _served(job: Job, room: Room) -> Limits:
    """Of a server: the longest sequence and the most sequences that the pool holds, which no allocator has a say in."""
    from memcalc.whatif.served import LONGEST, at_most

    if room.room_bytes < find_gpu(job.run.hardware.gpu or "").capacity_bytes:
        raise InputError(f"{job.run.code} takes a share of its card: say how large, not a limit or margin", where="code")
    found = at_most(job)
    rank, serving = found.answer.most_loaded, found.answer.serving
    assert serving is not None
    cache = tuple((kind, n) for kind, n in (("kv_cache", serving.kv_cache_bytes), ("weights", rank.instants[0].allocated_bytes)))
    need_bytes, longest = rank.device_bytes, found.largest_model_len
    stop = "the pool is full" if longest < LONGEST else "no longer one is looked for"
    answers = (
        Limit("seq_len", job.seq_len, longest, longest, need_bytes, None, "decode", cache, stop=stop),
        Limit("micro_batch", job.micro_batch, found.num_sequences, found.num_sequences, need_bytes, None, "decode", cache, stop="the pool is full"),
    )
    return Limits(job, room, answers, None, ())


def probes(job: Job, room: Room, most: int) -> tuple[Probe, ...]:
    """The trials that find a largest batch, with the reading to expect at each."""
    import numpy as np

    batches = np.asarray(list(tries(most)), dtype=np.int64)
    outside = outside_bytes(job)
    needed = needs(job, batches, np.full_like(batches, job.seq_len)).tolist()
    return tuple(Probe(batch, n - outside, n <= room.room_bytes) for batch, n in zip(batches.tolist(), needed, strict=True))


def tries(most: int) -> Iterator[int]:
    """Batches to try in turn: one, doubled until one does not fit, then the middles between the last that fits and the first that does not.

    >>> list(tries(5))
    [1, 2, 4, 8, 6, 5]
    """
    low, high = 0, 1
    while high <= most:
        yield high
        low, high = high, high * 2
    yield high
    while high - low > 1:
        middle = (low + high) // 2
        yield middle
        low, high = (middle, high) if middle <= most else (low, middle)


# ---------------------------------------------------------------------- inside
def _of_size(job: Job, room: Room, key: str, played: Played, *, cap: int, step: int, near: int | None = None) -> Limit:
    import numpy as np

    def pair(n: int) -> tuple[int, int]:
        return (n * step, job.seq_len) if key == "micro_batch" else (job.micro_batch, n * step)

    def fits(values: Ints) -> Bools:
        other = np.full_like(values, job.seq_len if key == "micro_batch" else job.micro_batch)
        sizes = (values, other) if key == "micro_batch" else (other, values)
        return needs(job, *sizes) <= room.room_bytes

    bound = largest(fits, cap=cap, step=step, marks=bounds_of(job) if key == "seq_len" else ())
    safe = step * _safe(lambda n: played(*pair(n)), bound // step, near=near)
    asked = getattr(job, key)
    gets_by = safe < asked <= bound and played(job.micro_batch, job.seq_len)
    return _limit(key, asked, bound, safe, lambda n: _with(job, key, n), step=step)._replace(gets_by=gets_by)


def _as_said(job: Job, room: Room, played: Played) -> Limit:
    """Of prompts and answers whose lengths are both said there is one length, which fits or not."""
    found = _limit("seq_len", job.seq_len, job.seq_len, 0, lambda _: job, most=job.seq_len)
    fits = found.need_bytes <= room.room_bytes
    safe = job.seq_len if fits and played(job.micro_batch, job.seq_len) else 0
    return found._replace(bound=job.seq_len * fits, safe=safe, need_bytes=found.need_bytes * fits, stop="prompt_length and response_length say how long it is")


def _with(job: Job, key: str, value: int) -> Job:
    return replace(job, micro_batch=value) if key == "micro_batch" else replace(job, seq_len=value)


def _safe(fits: Callable[[int], bool], bound: int, *, near: int | None = None) -> int:
    """The highest up to a bound such that it, and all that is looked at below it, is played through, and one more is not.

    Where blocks find a place is a matter of their sizes, so a smaller batch may fail where a larger one goes through.
    """
    low = 0
    looks = LOOKS if near is None else 1
    for value in sorted({bound * i // looks for i in range(1, looks + 1)} - {0}):
        if not fits(value):
            return highest_between(fits, low, value, near=near)
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
    walk = max(walk_ranks(shown), key=attrgetter("peak_bytes")).walk
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
        return resolve(read_run(job.asked, lora_r=rank))

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
            return resolve(read_run(job.asked, recompute="none", recompute_method=None, recompute_num_layers=None))
        return resolve(read_run(job.asked, recompute="full", recompute_method="block", recompute_num_layers=layers - kept))

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


def _of_tokens(job: Job, room: Room, played: Played, *, bound: int, safe: int) -> Tokens:
    """Tokens of a batch in any shape; `bound` and `safe` are those of one batch, which they come near to."""
    found = most_tokens(job, room.room_bytes, near=bound)
    shapes = sorted({found.worst[1], found.seq_len}, reverse=True)

    def fits(tokens: int) -> bool:
        return all(played(tokens // length, length) for length in shapes if tokens >= length)

    return found._replace(safe=highest_between(fits, 0, found.bound, near=safe))


__all__ = ["Limit", "Limits", "Probe", "Tokens", "limits", "probes", "tries"]
