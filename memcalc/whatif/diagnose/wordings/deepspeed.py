"""DeepSpeed's ``see_memory_usage``: no failure, but what the card and the host held on the way there. It says GB and means GiB."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import Message, size

WORDS = ("Max_MA", "CPU Virtual Memory")
MARK = r"MA [\d.]+ GB +Max_MA|CPU Virtual Memory: +used ="
HOST = "DeepSpeed, of the host"
"""The wording of what is told of the host."""

USAGE = re.compile(r"MA (?P<now>[\d.]+) GB +Max_MA (?P<most>[\d.]+) GB +CA (?P<reserved>[\d.]+) GB +Max_CA (?P<top>[\d.]+) GB")
VIRTUAL = re.compile(r"CPU Virtual Memory: +used = (?P<used>[\d.]+) GB, percent = (?P<percent>[\d.]+)%")


def parse(text: str) -> Message | None:
    """The message, where the text begins with one."""
    card, host = USAGE.search(text), VIRTUAL.search(text)
    if card is not None and (host is None or card.start() < host.start()):
        allocated, reserved = (size(f"{card[name]} GB", gib=True) for name in ("now", "reserved"))
        return Message("usage", "DeepSpeed", allocated=allocated, reserved=reserved)
    if host is None:
        return None
    used, percent = float(host["used"]), float(host["percent"])
    return Message(
        "usage", HOST, capacity=size(f"{used / percent * 100:.0f} GB", gib=True) if percent else None, allocated=size(f"{host['used']} GB", gib=True)
    )
