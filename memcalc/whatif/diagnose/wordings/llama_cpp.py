"""llama.cpp's buffers: of weights, of the cache, of what a batch computes."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import SIZE, Message, size

WORDS = ("alloc_buffer: allocating", "failed to allocate buffer for kv cache", "unable to allocate", "Malloc failed: out of memory")
MARK = r"alloc_buffer: allocating .* failed: out of memory|failed to allocate buffer for kv cache|unable to allocate \w+ buffer|Malloc failed: out of memory"

ALLOCATING = re.compile(rf"allocating ({SIZE}) on device (\d+): \w+Malloc failed: out of memory")
FAILED = re.compile(MARK)


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    if found := ALLOCATING.search(text):
        return Message("device", "llama.cpp", size(found[1]), gpu=int(found[2]))
    return Message("device", "llama.cpp") if FAILED.search(text) else None
