"""Whether a job fits a card: by the least that it needs, in arrays, and by playing its step through the caching allocator, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from memcalc.engine.degrees import num_parts
from memcalc.engine.estimate import walk_ranks
from memcalc.engine.verdict import reservation
from memcalc.errors import InputError
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.run import Run
from memcalc.whatif.sweep import CHUNK, answers, outside_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = "NDArray[np.int64]"
    Bools: TypeAlias = "NDArray[np.bool_]"

IMPOSSIBLE = 1 << 60
"""The need of what cannot be."""

STRIDE = 6
"""Powers of two looked at in one array."""

FINE = 256
"""Values looked at in one array between a value that fits and one that does not."""


class Room(NamedTuple):
    """What a job may take.

    Attributes:
        name: of the card, or "the limit".
        capacity_bytes: what it offers.
        room_bytes: of that, what may be used.
    """

    name: str
    capacity_bytes: int
    room_bytes: int


def room_for(run: Run, *, limit_bytes: int | None = None, margin: float = 0.0) -> Room:
    """The narrower of the run's card and a limit, less the margin.

    Raises:
        InputError: neither is named.
    """
    card = find_gpu(run.hardware.gpu) if run.hardware.gpu is not None else None
    if card is None and limit_bytes is None:
        raise InputError("no card named: give --gpu (`memcalc gpus` lists them), or --limit 75GiB")
    if limit_bytes is not None and (card is None or limit_bytes < card.capacity_bytes):
        name, capacity = "the limit", limit_bytes
    else:
        assert card is not None
        name, capacity = card.name, card.capacity_bytes
    return Room(name, capacity, int(capacity - margin * capacity))


def needs(job: Job, batch: Ints, seq: Ints) -> Ints:
    """The least that the card must offer for each pair of sizes: allocated at the peak, and what stands outside the allocator.

    Sizes that the model cannot have need more than any card has.
    """
    import numpy as np

    found: Ints = np.empty(len(batch), dtype=np.int64)
    for begin in range(0, len(batch), CHUNK):
        part = slice(begin, begin + CHUNK)
        some: Ints = np.full(len(batch[part]), IMPOSSIBLE, dtype=np.int64)
        for same, answer in answers(job, batch[part], seq[part]):
            if not isinstance(answer, str):
                some[same] = answer[0]
        found[part] = some
    return found + outside_bytes(job)


def need(job: Job) -> int:
    """The same for the job as it is."""
    return max(one.peak_bytes for one in walk_ranks(job, detailed=False)) + outside_bytes(job)


def plays(job: Job, room_bytes: int) -> bool:
    """Whether the most loaded rank's step, played through the caching allocator, gets by with so many bytes on the card; sizes that cannot be do not."""
    try:
        walked = walk_ranks(job, detailed=False)
    except InputError:
        return False
    loaded = max(walked, key=attrgetter("peak_bytes"))
    peak = loaded.peak_bytes
    if peak + outside_bytes(job) > room_bytes:
        return False
    others = loaded.others_bytes
    return not reservation(job, loaded, peak - others, capacity_bytes=room_bytes - others).wanted_bytes


def granule(job: Job) -> int:
    """Lengths are a multiple of this: the ranks that cut sequences."""
    return num_parts(job.run.code, int(job.mesh.cp)) * int(job.mesh.tp if job.mesh.sp or job.run.code == "torchtitan" else 1)


def largest(fits: Callable[[Ints], Bools], *, cap: int, step: int = 1, marks: Iterable[int] = ()) -> int:
    """The largest multiple of `step` up to `cap` that fits, 0 where none does; what is above it does not, as far as is looked.

    Looked at are powers of two up to the first that does not fit; an array up to four times that, with the marks and their neighbours; finer and
    finer arrays above the highest that fits; at last the next values one by one.
    """
    import numpy as np

    high = _first_power(fits, cap // step, step)
    top = min(4 * high, cap // step)
    near = {m // step + d for m in marks for d in (-1, 0, 1)}
    found = _highest(fits, [*np.unique(np.geomspace(1, max(top, 1), FINE).astype(np.int64)).tolist(), *(n for n in near if 1 <= n <= top)], step)
    while found < top:
        above = _next(fits, found, step, top)
        if above == found:
            break
        found = above
    return found * step


def _first_power(fits: Callable[[Ints], Bools], most: int, step: int) -> int:
    """The first power of two that does not fit, or that is more than there may be; looked for in strides, for the largest take long to count."""
    import numpy as np

    begin = 0
    while True:
        powers = [1 << i for i in range(begin, begin + STRIDE) if 1 << i <= most]
        able = fits(np.asarray(powers, dtype=np.int64) * step) if powers else np.asarray([], dtype=bool)
        if len(powers) < STRIDE or not able.all():
            return next((power for power, fit in zip(powers, able.tolist(), strict=True) if not fit), 1 << (begin + len(powers)))
        begin += STRIDE


def _next(fits: Callable[[Ints], Bools], found: int, step: int, top: int) -> int:
    """The same or a higher one: by arrays that close in on the first that does not fit, then among the neighbours."""
    width = max(top - found, 1)
    while True:
        width = max(width // FINE, 1)
        found = _highest(fits, [found + i * width for i in range(1, FINE + 1) if found + i * width <= top], step, found)
        if width == 1:
            return found


def _highest(fits: Callable[[Ints], Bools], values: Iterable[int], step: int, otherwise: int = 0) -> int:
    import numpy as np

    some = np.asarray(sorted(set(values)), dtype=np.int64)
    able = some[fits(some * step)] if len(some) else some
    return int(able[-1]) if len(able) else otherwise


def highest_between(fits: Callable[[int], bool], low: int, high: int, *, near: int | None = None) -> int:
    """By bisection, a value that fits where the next does not; `low` is taken to fit, and is the answer where nothing above does.

    Args:
        fits: whether a value does.
        low, high: ends.
        near: where the answer is expected; looked for in growing steps from there.

    >>> highest_between(lambda n: n * n <= 90, 1, 90)
    9
    """
    if fits(high):
        return high
    if near is not None and low < near < high:
        step = 1 if fits(near) else -1
        while low < near < high and fits(near) == (step > 0):
            low, high = (near, high) if step > 0 else (low, near)
            near, step = near + step, step * 2
        if low < near < high:
            low, high = (near, high) if step < 0 else (low, near)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
