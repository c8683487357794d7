"""Messages that give few numbers or none: those of other allocators, and the words alone."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import SIZE, Message, size

WORDS = ("out of memory", "OUT_OF_MEMORY", "MemoryAllocation", "RESOURCE_EXHAUSTED", "OutOfMemory")
MARK = (
    r"(?:CUDA|HIP|NPU|XPU|cuda|hip) (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED: Out of memory"
    r"|MPS backend out of memory|hipErrorOutOfMemory"
)

MPS = re.compile(rf"MPS backend out of memory \(MPS allocated: ({SIZE}), other allocations: ({SIZE}), max allowed: ({SIZE})\)\. Tried to allocate ({SIZE})")
JAX = re.compile(r"RESOURCE_EXHAUSTED: Out of memory.{0,60}?allocat(?:e|ing) (\d+) bytes")
WANTED = re.compile(rf"out of memory\. Tried to allocate ({SIZE})")
ALONE = re.compile(MARK)


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    if found := MPS.search(text):
        allocated, _, capacity, wanted = map(size, found.groups())
        return Message("device", "torch, MPS", wanted, capacity, allocated)
    if found := JAX.search(text):
        return Message("device", "XLA", size(f"{found[1]} bytes"))
    found = ALONE.search(text)
    if found is None:
        return None
    printed = WANTED.search(text)
    return Message("device", "the words alone" if printed is None else "cut short", size(printed[1]) if printed else None)
