"""Python loops over the sequence: the ends are run, the steps between are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memcalc.code.context import Context

RUN = 5
"""Steps that are run: two at each end, where gradients and saved tensors differ, and one for those between."""


def steps(ctx: Context, tokens: int = 1) -> Iterator[Any]:
    """For each step that is to be run, how many others it stands for besides itself: None but for the one in the middle.

    Args:
        ctx: whose sequences.
        tokens: of one step; the last may be shorter.

    Raises:
        InputError: the number of steps is below `RUN` for some of an array of sequence lengths, and not the same for all.
    """
    num = 1
    while num < RUN and ctx.reaches(num * tokens + 1):
        num += 1
    middle = RUN // 2 if num == RUN else -1
    for i in range(num):
        yield -(-ctx.seq.size // tokens) - RUN if i == middle else None


def is_cut(ctx: Context, chunk: int) -> bool:
    """Whether the last chunk is not full; for an array of lengths, whether any is not."""
    rest = ctx.seq.size % chunk
    return bool(rest) if isinstance(rest, int) else bool(rest.any())
