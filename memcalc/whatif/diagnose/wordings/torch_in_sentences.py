"""torch from 2.1 on, under CUDA, HIP and XPU: ``GPU 0 has a total capacity of 23.65 GiB of which …``, at first with the spelling "capacty"."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import SIZE, Message, Size, size

WORDS = ("out of memory. Tried",)
MARK = r"out of memory\. Tried to allocate"

HEAD = re.compile(
    rf"(?P<device>CUDA|HIP|XPU|NPU) out of memory\. Tried to allocate (?P<wanted>{SIZE})\.?\s*"
    rf"(?:GPU|XPU|NPU) +(?P<gpu>\d*) *has a total capaci?ty of (?P<capacity>{SIZE})(?:\.| of which (?P<free>{SIZE}) is free)"
)
OTHER = re.compile(rf"Process (\d+) has ({SIZE}) memory in use")
MINE = re.compile(rf"this process has ({SIZE}) memory in use")
ALLOCATED = re.compile(rf"({SIZE}) is allocated by PyTorch")
UNALLOCATED = re.compile(rf"({SIZE}) is reserved by PyTorch but unallocated")


def parse(text: str) -> Message | None:
    """The message, where the text has one. A process that is named and holds what torch has allocated is this one."""
    head = HEAD.search(text)
    if head is None:
        return None
    rest = text[head.end() :]
    allocated, spare, mine = (size(m[1]) if (m := part.search(rest)) else None for part in (ALLOCATED, UNALLOCATED, MINE))
    capacity = size(head["capacity"])
    mine = None if mine is not None and _is_senseless(mine, capacity) else mine
    others = [(int(pid), found) for pid, held in OTHER.findall(rest) if (found := size(held)) is not None and not _is_senseless(found, capacity)]
    if mine is None and others:
        own = max(others, key=lambda other: other[1].bytes)
        if allocated is None or own[1].bytes >= allocated.bytes:
            mine = own[1]
            others.remove(own)
    reserved = None if allocated is None or spare is None else spare._replace(bytes=allocated.bytes + spare.bytes, half=allocated.half + spare.half, text="")
    return Message(
        "device",
        "torch from 2.1" if head["device"] == "CUDA" else f"torch from 2.1, {head['device']}",
        size(head["wanted"]),
        capacity,
        allocated,
        reserved,
        size(head["free"]),
        mine,
        tuple(others),
        int(head["gpu"]) if head["gpu"] else None,
    )


def _is_senseless(told: Size, capacity: Size | None) -> bool:
    """More than the card has: what a driver under WSL cannot tell is printed as 2^64 bytes."""
    return capacity is not None and told.bytes > 2 * capacity.bytes
