"""The same run over lists of values: every combination, the sizes of the batch in arrays.

Combinations that differ only in ``micro_batch`` and ``seq_len`` have the same tensors with other sizes, so they are one walk over
integer arrays; every other combination is a walk of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from memcalc.dataclass import dataclass
from memcalc.engine.degrees import num_parts
from memcalc.engine.estimate import walk_ranks
from memcalc.engine.resolve import SERVERS, resolve
from memcalc.engine.settings import components, windows_of
from memcalc.engine.verdict import device_terms
from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.run import Run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memcalc.whatif.served import Held

    Ints: TypeAlias = "NDArray[np.int64]"

SIZES = ("micro_batch", "seq_len")
"""Keys that may be arrays."""

CHUNK = 1 << 14
"""Combinations walked at once: some tens of arrays of this length are alive at a time."""


MAX_TOKENS, MAX_SQUARE, MAX_SQUARE_EAGER, MAX_BYTES = 2**34, 2**52, 2**46, 2**62
"""Up to these many tokens, and batches times squared lengths, no sum of bytes leaves 64-bit integers."""


@dataclass(frozen=True)
class Points:
    """Combinations that share all but the sizes of the batch.

    Attributes:
        values: the swept keys that they share.
        micro_batch, seq_len: of each combination.
        peak_bytes: allocated at the peak of the most loaded rank; -1 where the combination cannot be.
        instant: index into `instants` of the instant at which that is.
        instants: names.
        reason: why they cannot be, or None.
        held: of a server, what its pool holds.
        device_bytes: what stands outside the allocator on the card (context, workspaces, communicators).
        capacity_bytes: what the card offers, or None where none is named.
    """

    values: dict[str, Any]
    micro_batch: Ints
    seq_len: Ints
    peak_bytes: Ints
    instant: Ints
    instants: tuple[str, ...]
    reason: str | None = None
    device_bytes: int = 0
    capacity_bytes: int | None = None
    held: tuple[Held, ...] = ()

    def __len__(self) -> int:
        return len(self.peak_bytes)


def sweep(make: Callable[[dict[str, Any]], Run], axes: Mapping[str, Sequence[Any]], *, progress: Callable[[int], None] | None = None) -> Iterator[Points]:
    """Every combination of the axes' values.

    Args:
        make: the run for values of the swept keys (for ``micro_batch`` and ``seq_len``: one of each).
        axes: values by key, in the order in which they are to vary, the last one fastest; the sizes of the batch vary fastest, the length before all.
        progress: told how many combinations are done.

    Yields:
        Points in chunks of bounded size.
    """
    import numpy as np

    sizes = {key: np.asarray(axes[key], dtype=np.int64) for key in SIZES if key in axes}
    shared = {key: values for key, values in axes.items() if key not in SIZES}
    for combination in product(*shared.values()):
        values = dict(zip(shared, combination, strict=True))
        job = _resolved(make, values, sizes)
        for batch, seq in _grid(sizes, job):
            yield from _evaluate(job, values, batch, seq)
            if progress is not None:
                progress(len(batch))


def _resolved(make: Callable[[dict[str, Any]], Run], values: dict[str, Any], sizes: Mapping[str, Ints]) -> Job | str:
    """The job with a length that can be, if any of those can that are likely to: the one that the highest power of two divides, and the longest."""
    first = {key: int(array[0]) for key, array in sizes.items()}
    lengths = sizes["seq_len"].tolist() if "seq_len" in sizes else []
    likely = {max(lengths, key=lambda n: (n & -n, n)): None, max(lengths): None} if lengths else {}
    tried = [_tried(make, values | first | one) for one in ([{"seq_len": length} for length in likely] or [{}])]
    return next((job for job in tried if not isinstance(job, str)), tried[0])


def _tried(make: Callable[[dict[str, Any]], Run], values: dict[str, Any]) -> Job | str:
    """The job, or why it cannot be.

    Raises:
        UnknownNameError: of a model or an optimizer: that is a slip of the pen, not a combination that cannot be.
    """
    try:
        return resolve(make(values))
    except InputError as error:
        if isinstance(error, UnknownNameError) and error.kind in ("model", "optimizer"):
            raise
        return str(error)


def _grid(sizes: Mapping[str, Ints], job: Job | str) -> Iterator[tuple[Ints, Ints]]:
    """All pairs of batch and length, in chunks."""
    import numpy as np

    one = np.array([1], dtype=np.int64)
    batch = sizes.get("micro_batch", one if isinstance(job, str) else one * job.micro_batch)
    seq = sizes.get("seq_len", one if isinstance(job, str) else one * job.seq_len)
    total = len(batch) * len(seq)
    for begin in range(0, total, CHUNK):
        index = np.arange(begin, min(begin + CHUNK, total))
        yield batch[index // len(seq)], seq[index % len(seq)]


def _evaluate(job: Job | str, values: dict[str, Any], batch: Ints, seq: Ints) -> Iterator[Points]:
    """Those that can be as one, then the others by their reasons."""
    import numpy as np

    peak: Ints = np.full(len(batch), -1, dtype=np.int64)
    when: Ints = np.zeros(len(batch), dtype=np.int64)
    if isinstance(job, str):
        yield Points(values, batch, seq, peak, when, (), job)
        return
    names: tuple[str, ...] = ()
    refused: list[tuple[Ints, str]] = []
    left: Ints = np.arange(len(batch))
    for bad, reason in _lengths_refused(job, seq):
        refused.append((left[bad[left]], reason))
        left = left[~bad[left]]
    for some, answer in answers(job, batch[left], seq[left]) if len(left) else ():
        same = left[some]
        if isinstance(answer, str):
            refused.append((same, answer))
        else:
            peak[same], when[same], names = answer
    card = job.run.hardware.gpu
    capacity = None if card is None else find_gpu(card).capacity_bytes
    able = peak >= 0
    if able.any():
        found = _held(job, batch[able], seq[able])
        yield Points(values, batch[able], seq[able], peak[able], when[able], names, None, outside_bytes(job), capacity, found)
    for same, reason in (one for one in refused if len(one[0])):
        yield Points(values, batch[same], seq[same], peak[same], when[same], (), reason)


def _lengths_refused(job: Job, seq: Ints) -> Iterator[tuple[Any, str]]:
    """Which lengths cannot be, and why: of what `resolve` asks of the one that it sees."""
    mesh, code = job.mesh, job.run.code
    parts = num_parts(code, mesh.cp) * (mesh.tp if code == "torchtitan" else 1)
    if parts > 1:
        yield seq % parts != 0, f"seq_len: it does not divide into the {parts} parts of cp {mesh.cp}{f' * tp {mesh.tp}' if code == 'torchtitan' else ''}"
    if job.model.vision is not None and job.model.vision.alone:
        yield seq != job.seq_len, f"seq_len: an image of {job.model.name} is {job.seq_len} tokens"
    elif job.run.images and job.model.vision is not None:
        yield seq < shortest(job), f"images: {job.run.images} images are {shortest(job)} tokens, more than seq_len"
    elif has_fixed_length(job):
        yield seq != job.seq_len, f"seq_len: prompts and answers of the lengths that are said are {job.seq_len} tokens"
    elif shortest(job) > 1:
        yield seq < shortest(job), "seq_len: the sequence leaves no room for prompt and answer"


def has_fixed_length(job: Job) -> bool:
    """Prompt and answer are both said, so that sequences have one length."""
    if job.cast is None or not job.cast.is_online:
        return False
    from memcalc.engine.rlhf.cast import is_fixed

    return is_fixed(job.cast.run)


def shortest(job: Job) -> int:
    """Shorter sequences than this cannot be: they hold the tokens of images, or a prompt and an answer."""
    if job.run.images and job.model.vision is not None:
        return int(job.run.images * job.model.vision.text_tokens(job.image_size))
    if job.cast is not None and job.cast.is_online:
        from memcalc.engine.rlhf.cast import shortest as of_prompt_and_answer

        return of_prompt_and_answer(job.cast.run)
    return 1


def _held(job: Job, batch: Ints, seq: Ints) -> tuple[Held, ...]:
    if job.run.code not in SERVERS:
        return ()
    from memcalc.whatif.served import held

    return tuple(held(job, b, s) for b, s in zip(batch.tolist(), seq.tolist(), strict=True))


def outside_bytes(job: Job) -> int:
    """What stands on the card beside the allocator's tensors; of a server, what its engine counts there."""
    if job.run.code in SERVERS:
        from memcalc.engine.serving import serve

        return sum(term.bytes for term in serve(job).most_loaded.device)
    return sum(term.bytes for term in device_terms(job))


def answers(job: Job, batch: Ints, seq: Ints) -> Iterator[tuple[Ints, tuple[Ints, Ints, tuple[str, ...]] | str]]:
    """Indices of sizes with their `peaks`, or with the reason why they cannot be."""
    if job.run.code in SERVERS:
        from memcalc.whatif.served import points

        yield from points(job, batch, seq)
        return
    import numpy as np

    large = _beyond(job, batch, seq)
    small = np.flatnonzero(~large)
    for same in sides(job, batch[small], seq[small]) if len(small) else ():
        yield from _answers(job, batch, seq, small[same])
    for i in np.flatnonzero(large):
        yield np.asarray([i]), _alone(job, int(batch[i]), int(seq[i]))


def _beyond(job: Job, batch: Ints, seq: Ints) -> Any:
    """Which sizes may leave 64-bit integers on the way, and are walked one by one in Python's own."""
    square = MAX_SQUARE_EAGER if job.run.attention == "eager" else MAX_SQUARE
    return (1.0 * batch * seq > MAX_TOKENS) | (1.0 * batch * seq * seq > square)


def _alone(job: Job, batch: int, seq: int) -> tuple[Ints, Ints, tuple[str, ...]] | str:
    import numpy as np

    try:
        walked = walk_ranks(replace(job, micro_batch=batch, seq_len=seq), detailed=False)
    except InputError as error:
        return str(error)
    names = tuple(walked[0].walk.instants)
    totals = [max(int(one.walk.instants[name].total) for one in walked) for name in names]
    most = max(totals)
    if most > MAX_BYTES:
        return f"micro_batch {batch} * seq_len {seq} needs more than 2^62 bytes"
    return np.asarray([most], dtype=np.int64), np.asarray([totals.index(most)], dtype=np.int64), names


def _answers(job: Job, batch: Ints, seq: Ints, same: Ints) -> Iterator[tuple[Ints, tuple[Ints, Ints, tuple[str, ...]] | str]]:
    """One walk; where it is refused, the shorter and the longer sequences apart."""
    import numpy as np

    try:
        found: tuple[Ints, Ints, tuple[str, ...]] | str = peaks(job, batch[same], seq[same])
    except InputError as error:
        lengths = np.unique(seq[same])
        if len(lengths) > 1:
            longer = seq[same] >= lengths[len(lengths) // 2]
            for part in (same[~longer], same[longer]):
                yield from _answers(job, batch, seq, part)
            return
        found = re.sub(r"\[(\d+)[^\]]*\]", r"\1", str(error))  # an array of sizes in the message
    yield same, found


def sides(job: Job, batch: Ints, seq: Ints) -> Iterator[Ints]:
    """Indices of the sizes for which the same tensors are made.

    Lengths lie on the same side of every attention window and of whatever else a component names; a single sequence stands apart, whose
    heads batched products take without a copy.
    """
    import numpy as np

    bounds = bounds_of(job)
    local = seq if isinstance(job.mesh.cp, int) and job.mesh.cp == 1 else seq // job.mesh.cp
    side = 2 * np.searchsorted(np.asarray(bounds, dtype=np.int64), local, side="right") + (batch == 1)
    for value in np.unique(side):
        yield np.flatnonzero(side == value)


def bounds_of(job: Job) -> list[int]:
    """Lengths from which on other tensors are made, or the same ones cease to grow."""
    named = {n for block in job.model.blocks for m in components(block.module) for n in m.lengths}
    return sorted(named.union(w for w in windows_of(job.model) if w is not None))


def peaks(job: Job, batch: Ints, seq: Ints) -> tuple[Ints, Ints, tuple[str, ...]]:
    """The highest instant of the most loaded rank for each pair of sizes.

    Returns:
        Its bytes, the index of its name, the names.
    """
    import numpy as np

    walked = walk_ranks(replace(job, micro_batch=1 if (batch == 1).all() else batch, seq_len=seq), detailed=False)
    names = tuple(walked[0].walk.instants)
    peak: Ints = np.full(len(batch), -1, dtype=np.int64)
    when: Ints = np.zeros(len(batch), dtype=np.int64)
    for one in walked:
        for i, name in enumerate(names):
            total = np.broadcast_to(np.asarray(one.walk.instants[name].total, dtype=np.int64), peak.shape)
            higher = total > peak
            peak, when = np.where(higher, total, peak), np.where(higher, i, when)
    return peak, when, names


__all__ = ["CHUNK", "SIZES", "Points", "answers", "bounds_of", "outside_bytes", "peaks", "sides", "sweep"]
