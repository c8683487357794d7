"""torch up to 2.0, and torch_npu to this day: ``Tried to allocate … (GPU 5; 31.75 GiB total capacity; 28.28 GiB already allocated; …)``."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import SIZE, Message, size

WORDS = ("out of memory. Tried",)
MARK = r"out of memory\. Tried to allocate"

HEAD = re.compile(rf"(?P<device>CUDA|HIP|NPU|XPU|MUSA|MLU) out of memory\. Tried to allocate (?P<wanted>{SIZE})\s*\((?P<inside>(?:GPU|NPU|XPU)?[^()]*)")
DEVICE = re.compile(r"(?:GPU|NPU|XPU|MUSA|MLU)\s*(\d+)")
PARTS = {
    "capacity": re.compile(rf"({SIZE}) total"),
    "allocated": re.compile(rf"({SIZE}) already allocated"),
    "free": re.compile(rf"({SIZE}) free"),
    "reserved": re.compile(rf"({SIZE}) (?:reserved in total|cached)"),
}


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    head = HEAD.search(text)
    if head is None:
        return None
    inside = head["inside"]
    found = {name: size(m[1]) for name, part in PARTS.items() if (m := part.search(inside))}
    device = DEVICE.search(inside)
    wording = "torch_npu" if head["device"] == "NPU" else "torch up to 2.0"
    return Message("device", wording, size(head["wanted"]), **found, gpu=int(device[1]) if device else None)  # type: ignore[arg-type]
