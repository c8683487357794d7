"""How many tokens a batch may hold, in whatever shape of equally long sequences: for loaders that count tokens. Answers as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memcalc.specs.job import Job
from memcalc.whatif.fit import granule, needs
from memcalc.whatif.sweep import shortest

if TYPE_CHECKING:
    from memcalc.whatif.fit import Ints

MAX_LENGTHS = 4096
"""Lengths for which the largest batch is found; of longer sequences, evenly spread ones."""

MAX_TOKENS, MAX_BATCH = 2**33, 2**27
"""No larger batch is looked for."""

ROUNDS, LEAP = 12, 32
"""Steps along the slope, each at most so many times as far, before what is left is closed in on by halves."""


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


def most_tokens(job: Job, room_bytes: int, *, near: int) -> Tokens:
    """The most tokens that fit in every shape; of them as many are said to be safe.

    Args:
        job: its own length is the longest looked at; what sequences must hold is in the shortest.
        room_bytes: what the card may give.
        near: about how many it will be.
    """
    import numpy as np

    unit = granule(job)
    every = unit * max(1, -(-(job.seq_len // unit) // MAX_LENGTHS))
    lengths = np.arange(every, job.seq_len + 1, every, dtype=np.int64)
    lengths = lengths[lengths >= shortest(job)]
    if not len(lengths):
        lengths = np.asarray([job.seq_len], dtype=np.int64)
    batches = first_unfit(job, lengths, room_bytes, near=near)
    tokens = batches * lengths
    i = int(tokens.argmin())
    most = int(tokens[i]) - 1
    return Tokens(most, most, int(lengths[-1]), (int(batches[i]), int(lengths[i])), every)


def first_unfit(job: Job, lengths: Ints, room_bytes: int, *, near: int) -> Ints:
    """For every length a batch that does not fit where one less does, all lengths at once.

    Memory is the largest of a few straight lines in the batch: from any batch the slope leads to the crossing, or short of it, in a few steps.
    """
    import numpy as np

    most: Ints = np.minimum(np.maximum(MAX_TOKENS // lengths, 1), MAX_BATCH)
    batch: Ints = np.clip(near // lengths, 1, most)
    left = np.arange(len(lengths))
    for _ in range(ROUNDS):
        here, more = np.split(needs(job, np.concatenate([batch[left], batch[left] + 1]), np.tile(lengths[left], 2)), 2)
        low, high = here <= room_bytes, more <= room_bytes
        slope = np.maximum(more - here, 1)
        ahead = np.minimum(batch[left] + 1 + (room_bytes - more) // slope, batch[left] * LEAP)
        moved = np.clip(np.where(low & high, ahead, batch[left] + (room_bytes - here) // slope), 1, most[left])
        done = (low & ~high) | (moved == batch[left])  # those at an end can go no further
        batch[left[~done]] = moved[~done]
        batch[left[done]] += low[done]  # where not even one fits, one does not
        left = left[~done]
        if not len(left):
            return batch
    batch[left] = _halved(job, lengths[left], room_bytes)
    return batch


def _halved(job: Job, lengths: Ints, room_bytes: int) -> Ints:
    """The same by doubling, then halves."""
    import numpy as np

    low, high = np.zeros_like(lengths), np.ones_like(lengths)
    rising = np.flatnonzero(needs(job, high, lengths) <= room_bytes)
    while len(rising):
        low[rising], high[rising] = high[rising], high[rising] * 2
        rising = rising[(needs(job, high[rising], lengths[rising]) <= room_bytes) & (high[rising] < MAX_BATCH)]
    while (open_ := np.flatnonzero(high - low > 1)).size:
        middle = (low[open_] + high[open_]) // 2
        able = needs(job, middle, lengths[open_]) <= room_bytes
        low[open_], high[open_] = np.where(able, middle, low[open_]), np.where(able, high[open_], middle)
    return high


__all__ = ["Tokens", "first_unfit", "most_tokens"]
