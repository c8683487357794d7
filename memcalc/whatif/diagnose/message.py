"""What an out-of-memory message says, as data: every wording is read into the same few numbers."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from memcalc.engine.allocator import LARGE_SEGMENT_BYTES, MIN_LARGE_BYTES, ROUND_LARGE_BYTES, SMALL_BYTES, SMALL_SEGMENT_BYTES
from memcalc.units import GB, KB, MB, TB, GiB, KiB, MiB, TiB, round_up

Kind = Literal["device", "library", "refusal", "host", "usage"]
"""The card's allocator; a library's own memory beside it; a server that would not start; the host; a line that only tells what is used."""

UNITS = {"B": 1, "KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": TiB, "KB": KB, "MB": MB, "GB": GB, "TB": TB}

SIZE = r"\d[\d.,]*\s?(?:bytes|[KMGT]i?B|[kMGT]b)"
"""A number with its unit, as messages print it."""


class Size(NamedTuple):
    """A size as it was printed.

    Attributes:
        bytes: what was printed.
        half: the last printed digit, halved: what was meant lies within so many bytes.
        text: as printed.
    """

    bytes: int
    half: int
    text: str

    def admits(self, num_bytes: float) -> bool:
        """Whether so many bytes would be printed so."""
        return abs(num_bytes - self.bytes) <= self.half


class Message(NamedTuple):
    """One message.

    Attributes:
        kind: who ran out.
        wording: whose words they are.
        wanted: what could not be had.
        capacity: of the card, the pool or the host.
        allocated, reserved: by torch's allocator, in tensors and in segments.
        free: on the card.
        process: of the card, by this process with all that is not torch's.
        others: of the card, by other processes: their number and what they hold.
        gpu: index of the card, among those that the process sees.
        tokens: of a server: asked for, and what there is room for; of its blocks: on the card, and on the host.
    """

    kind: Kind
    wording: str
    wanted: Size | None = None
    capacity: Size | None = None
    allocated: Size | None = None
    reserved: Size | None = None
    free: Size | None = None
    process: Size | None = None
    others: tuple[tuple[int, Size], ...] = ()
    gpu: int | None = None
    tokens: tuple[int, int] | None = None

    @property
    def unallocated_bytes(self) -> int | None:
        """Reserved and in no tensor: lost to fragmentation, or cached from before."""
        if self.reserved is None or self.allocated is None:
            return None
        return max(self.reserved.bytes - self.allocated.bytes, 0)

    @property
    def outside_bytes(self) -> int | None:
        """On the card and not of this process's allocator: its context and libraries, and other processes."""
        if self.capacity is None or self.free is None or self.reserved is None:
            return None
        return max(self.capacity.bytes - self.free.bytes - self.reserved.bytes, 0)


def size(text: str | None, *, gib: bool = False) -> Size | None:
    """A printed size; None for None.

    Args:
        text: number and unit.
        gib: it says GB and means GiB, as DeepSpeed does.

    >>> size("3.14 GiB").admits(3369207808)
    True
    """
    if text is None:
        return None
    match = re.fullmatch(r"([\d.,]+?)\s?(bytes|[KMGT]i?B|[kMGT]b)", text.strip())
    if match is None:
        return None
    number, unit = match[1].replace(",", "").rstrip("."), "B" if match[2] == "bytes" else match[2]
    if gib or (len(unit) == 2 and unit != unit.upper()):
        unit = f"{unit[0].upper()}iB"
    each = UNITS[unit]
    decimals = len(number.partition(".")[2])
    return Size(round(float(number) * each), round(each * 0.5 * 10**-decimals) if unit != "B" else 0, text.strip())


def request_bytes(num_bytes: int) -> int:
    """What a failed request of so many bytes is printed as: the segment that the allocator then asks the card for.

    Source: c10/cuda/CUDACachingAllocator.cpp, `get_allocation_size`.

    >>> request_bytes(202_383_360 * 2) // 2**20
    388
    """
    if num_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    return LARGE_SEGMENT_BYTES if num_bytes < MIN_LARGE_BYTES else round_up(num_bytes, ROUND_LARGE_BYTES)
