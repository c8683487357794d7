"""TensorRT, while it builds or loads an engine."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import Message, size

WORDS = ("Requested amount of GPU memory", "Cuda Error in allocate", "Cuda Runtime (out of memory)", "component could not be created: ")
MARK = (
    r"Requested amount of GPU memory \(\d+ bytes\) could not be allocated|Cuda Error in allocate: 2|Cuda Runtime \(out of memory\)"
    r"|The following component could not be created: \w"
)

REQUESTED = re.compile(r"Requested amount of GPU memory \((\d+) bytes\)")
FAILED = re.compile(MARK)
EXECUTOR = re.compile(
    r"component could not be created: (?P<what>.{1,80}?)\s+Total GPU memory \(GiB\): (?P<total>[\d.]+)"
    r"\s+Free GPU memory before component creation attempt \(GiB\): (?P<free>[\d.]+)"
)
"""TensorRT-LLM's executor, part by part: ``tensorrt_llm/_torch/pyexecutor/py_executor_creator.py``."""


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    if found := REQUESTED.search(text):
        return Message("device", "TensorRT", size(f"{found[1]} bytes"))
    if found := EXECUTOR.search(text):
        return Message("device", f"TensorRT-LLM, at its {found['what']}", capacity=size(f"{found['total']} GiB"), free=size(f"{found['free']} GiB"))
    return Message("device", "TensorRT") if FAILED.search(text) else None
