"""A log, line by line: its messages, each with the rank that wrote it, the step that had been reached, and the traceback above it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from memcalc.whatif.diagnose import wordings
from memcalc.whatif.diagnose.message import Message

AHEAD, FRAMES = 12, 200
"""Lines that a message may go on for, and frames of a traceback that are kept."""

MAX_LINE = 1 << 16
"""Of a longer line its end is looked at: progress bars may write one without end."""

PREFIX = re.compile(
    r"^(?:[\w.-]+: ?)??(?:\[(?:rank|default)(?P<torchrun>\d+)\]:?|\[\d+,(?P<mpirun>\d+)\]<std(?:err|out)>:?|\([^()]*?\brank=(?P<ray>\d+)[^()]*\)"
    r"|\(\w*Worker\w*?_TP(?P<vllm>\d+)[^()]*\)|(?P<srun>\d{1,5}): ) ?"
)
FRAME = re.compile(r'File "(?P<file>[^"]+)", line \d+, in (?P<name>\S+)')
STEP = re.compile(
    r"\| (?P<bar>\d+)/\d+ \[|\biteration\s+(?P<megatron>\d+)/|(?:global_)?step['\"]?\s*[=:]\s*(?P<named>\d+)|\bstep:?\s+(?P<plain>\d+)(?:/|\b)",
    re.IGNORECASE,
)


class Crash(NamedTuple):
    """A message in its place.

    Attributes:
        message: what it says.
        line: its number in the log, from 1.
        rank: who wrote it, as the log has it; empty where it does not say.
        step: the last one that was counted before it; None where none was.
        frames: file and function of the traceback above it, the innermost last.
        text: its lines.
        times: how often the log has it.
    """

    message: Message
    line: int
    rank: str
    step: int | None
    frames: tuple[str, ...]
    text: str = ""
    times: int = 1


def read(lines: Iterable[str]) -> Iterator[Crash]:
    """Every message of a log, in its order; the log is never held."""
    mark = re.compile(wordings.mark())
    coming: deque[str] = deque()
    source = iter(lines)
    frames: dict[str, deque[str]] = {}
    steps: dict[str, int] = {}
    number = 0
    while (line := coming.popleft() if coming else next(source, None)) is not None:
        number += 1
        line = line[-MAX_LINE:]
        rank, said = _who(line)
        if '"' in said and (frame := FRAME.search(said)):
            frames.setdefault(rank, deque(maxlen=FRAMES)).append(f"{frame['file']}:{frame['name']}")
        elif "Traceback (most recent" in said:
            frames.pop(rank, None)
        elif (step := _step(said)) is not None:
            steps[rank] = steps[""] = step
        if not mark.search(said):
            continue
        while len(coming) < AHEAD and (more := next(source, None)) is not None:
            coming.append(more)
        text = _whole(said, rank, coming, mark)
        found = wordings.parse(text)
        if found is not None:
            yield Crash(found, number, rank, steps.get(rank, steps.get("")), tuple(frames.pop(rank, ())), text)


def told_apart(crashes: Iterable[Crash]) -> list[Crash]:
    """Each message once for each rank, or card where ranks are not named; warnings and launchers repeat them."""
    found: dict[tuple[object, ...], Crash] = {}
    for crash in crashes:
        m = crash.message
        key = (crash.rank, m.kind if m.kind == "host" else m)
        first = found.get(key)
        found[key] = crash if first is None else first._replace(times=first.times + 1, frames=first.frames or crash.frames)
    return list(found.values())


# ---------------------------------------------------------------------- inside
def _who(line: str) -> tuple[str, str]:
    match = PREFIX.match(line)
    if match is None:
        return "", line
    return next(number for number in match.groups() if number is not None), line[match.end() :]


def _step(said: str) -> int | None:
    if "/" not in said and "tep" not in said:
        return None
    found = STEP.search(said)
    return None if found is None else int(next(number for number in found.groups() if number is not None))


def _whole(said: str, rank: str, coming: Iterable[str], mark: re.Pattern[str]) -> str:
    """The message's own line and those of the same rank after it, up to the next message or traceback."""
    parts = [said.rstrip("\n")]
    for line in coming:
        other, more = _who(line)
        if other != rank:
            continue
        if not more.strip() or mark.search(more) or "Traceback (most recent" in more:
            break
        parts.append(more.strip())
    return " ".join(parts)
