"""The host's memory: the kernel's killer in its own log, and what launchers say of a process that it ended."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import Message, size

WORDS = (
    "Killed",
    "oom-kill",
    "oom_kill",
    "OOMKilled",
    "exitcode",
    "exit code",
    "return code = -9",
    "SIGKILL",
    "DefaultCPUAllocator",
    "cannot pin",
    "signal: 9",
    "signal:9",
    "dmesg: OOM",
)
MARK = (
    r"Killed process \d+|^\s*Killed\s*$|Signal 9 \(SIGKILL\)|oom-kill:constraint|exit ?code:? ?:?\(?-9\b"
    r"|exits with return code = -9|died with <Signals\.SIGKILL|OOMKilled|oom_kill event|oom-kill event"
    r"|DefaultCPUAllocator: (?:can't|not enough)|cannot pin .* bytes of memory|terminated by signal: ?9\b|\(dmesg: OOM\)"
)

KILLED = re.compile(r"(?P<what>Memory cgroup out of memory|Out of memory)?[^\n]{0,40}?Killed process \d+ \([^)]*\)(?:[^\n]*?anon-rss:(?P<rss>\d+)kB)?")
ALLOCATE = re.compile(r"DefaultCPUAllocator: .{0,80}?(?:tried to allocate|you tried to allocate) (\d+) bytes")
ENDED = re.compile(MARK)


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    if found := KILLED.search(text):
        held = size(f"{found['rss']} KiB") if found["rss"] else None
        who = "the kernel, for a cgroup's limit" if (found["what"] or "").startswith("Memory cgroup") else "the kernel"
        return Message("host", who, allocated=held)
    if found := ALLOCATE.search(text):
        return Message("host", "torch on the host", size(f"{found[1]} bytes"))
    ended = ENDED.search(text) or text.lstrip().startswith("Killed")
    return Message("host", "a launcher, of a process that was killed") if ended else None
