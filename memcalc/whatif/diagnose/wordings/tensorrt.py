"""TensorRT, while it builds or loads an engine."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import Message, size

WORDS = ("Requested amount of GPU memory", "Cuda Error in allocate", "Cuda Runtime (out of memory)")
MARK = r"Requested amount of GPU memory \(\d+ bytes\) could not be allocated|Cuda Error in allocate: 2|Cuda Runtime \(out of memory\)"

REQUESTED = re.compile(r"Requested amount of GPU memory \((\d+) bytes\)")
FAILED = re.compile(MARK)


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    if found := REQUESTED.search(text):
        return Message("device", "TensorRT", size(f"{found[1]} bytes"))
    return Message("device", "TensorRT") if FAILED.search(text) else None
