"""DeepSpeed's ``see_memory_usage``: no failure, but what was allocated and reserved on the way there. It says GB and means GiB."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import Message, size

WORDS = ("Max_MA",)
MARK = r"MA [\d.]+ GB +Max_MA"

USAGE = re.compile(r"MA (?P<now>[\d.]+) GB +Max_MA (?P<most>[\d.]+) GB +CA (?P<reserved>[\d.]+) GB +Max_CA (?P<top>[\d.]+) GB")


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    found = USAGE.search(text)
    if found is None:
        return None
    allocated, reserved = (size(f"{found[name]} GB", gib=True) for name in ("now", "reserved"))
    return Message("usage", "DeepSpeed", allocated=allocated, reserved=reserved)
