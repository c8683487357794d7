"""Sweeps and limits of servers, whose pool follows from a budget: one answer at a time, no step to walk through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from memcalc.engine.result import Estimate, Serving
from memcalc.engine.serving import serve
from memcalc.errors import InputError
from memcalc.specs.job import Job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = "NDArray[np.int64]"

LONGEST = 1 << 27
"""No longer sequence is looked for."""


class Served(NamedTuple):
    """What a server's card allows.

    Attributes:
        answer: the estimate at the length that was asked for.
        largest_model_len: the longest sequence of which the pool holds one, however long the model's own is.
        num_sequences: how many of the length that was asked for the pool holds.
    """

    answer: Estimate
    largest_model_len: int
    num_sequences: int


def at_most(job: Job) -> Served:
    """The longest sequence and the most sequences.

    Raises:
        InputError: no layer's cache is on a card.
    """
    answer, longest = serve(job), serve(replace(job, seq_len=LONGEST))
    here, there = _pool(answer), _pool(longest)
    if not here.sequence_bytes:
        raise InputError("all of the cache stays on the host, so no card limits it; give more layers to the cards", where="serving.n_gpu_layers")
    return Served(answer, there.largest_model_len, int(here.max_concurrency))


class Held(NamedTuple):
    """What a server's pool holds.

    Attributes:
        sequences: of the length asked for, at once.
        longest: tokens of the longest sequence.
    """

    sequences: float
    longest: int


def points(job: Job, batch: Ints, seq: Ints) -> Iterator[tuple[Ints, tuple[Ints, Ints, tuple[str, ...]]]]:
    """Indices of sizes with peak, index of its instant and names of instants; what does not start needs what is short beyond its card."""
    import numpy as np

    for i, (b, s) in enumerate(zip(batch.tolist(), seq.tolist(), strict=True)):
        answer = serve(replace(job, micro_batch=b, seq_len=s))
        names = tuple(instant.name for instant in answer.most_loaded.instants)
        yield np.asarray([i]), (np.asarray([_peak(answer)]), np.asarray([names.index(answer.peak.name)]), names)


def held(job: Job, batch: int, seq: int) -> Held:
    """At one pair of sizes."""
    serving = _pool(serve(replace(job, micro_batch=batch, seq_len=seq)))
    return Held(serving.max_concurrency, serving.largest_model_len)


def _peak(answer: Estimate) -> int:
    serving, verdict, rank = _pool(answer), answer.verdict, answer.most_loaded
    if verdict is None or not verdict.refusal:
        return rank.allocated_bytes
    short = max(serving.sequence_bytes - serving.kv_cache_bytes, 1)
    return max(rank.allocated_bytes, verdict.capacity_bytes - sum(term.bytes for term in rank.device) + short)


def _pool(answer: Estimate) -> Serving:
    found: Any = answer.serving
    assert isinstance(found, Serving)
    return found
