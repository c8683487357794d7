"""A log, line by line: its messages, each with the rank that wrote it, the step that had been reached, and the traceback above it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from memcalc.whatif.diagnose import wordings
from memcalc.whatif.diagnose.message import Message

AHEAD, FRAMES, STEPS, STRETCH = 12, 200, 20, 1000
"""Lines that a message may go on for, frames of a traceback that are kept, lines that may count steps, and lines that are looked at together."""

MAX_LINE = 1 << 16
"""Of a longer line its end is looked at: progress bars may write one without end."""

PREFIX = re.compile(
    r"^(?:[\w.-]+: ?)??(?:\[(?:rank|default)(?P<torchrun>\d+)\]:?|\[\d+,(?P<mpirun>\d+)\]<std(?:err|out)>:?|\([^()]*?\brank=(?P<ray>\d+)[^()]*\)"
    r"|\(\w*Worker\w*?_TP(?P<vllm>\d+)[^()]*\)|(?P<srun>\d{1,5}): ) ?"
)
STARTS = ("[", "(", *"0123456789")
FRAME_WORD = 'File "'
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
    mark, words = re.compile(wordings.mark()), wordings.words()
    source = _telling(iter(lines), (*words, FRAME_WORD))
    coming: deque[tuple[int, str]] = deque()
    frames: dict[str, deque[str]] = {}
    counted: dict[str, deque[str]] = {}
    while (here := coming.popleft() if coming else next(source, None)) is not None:
        number, line = here
        rank, said = _who(line if len(line) <= MAX_LINE else line[-MAX_LINE:])
        if FRAME_WORD in said and (frame := FRAME.search(said)):
            frames.setdefault(rank, deque(maxlen=FRAMES)).append(f"{frame['file']}:{frame['name']}")
        elif "Traceback (most recent" in said:
            frames.pop(rank, None)
        elif "tep" in said or "/" in said:
            for who in {rank, ""}:
                counted.setdefault(who, deque(maxlen=STEPS)).append(said)
        if not any(word in said for word in words) or not mark.search(said):
            continue
        while len(coming) < AHEAD and (more := next(source, None)) is not None:
            coming.append(more)
        text = _whole(said, rank, (line for _, line in coming), mark)
        found = wordings.parse(text)
        if found is not None:
            step = next((n for who in (rank, "") for n in map(_step, reversed(counted.get(who, ()))) if n is not None), None)
            yield Crash(found, number, rank, step, tuple(frames.pop(rank, ())), text)


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
def _telling(lines: Iterator[str], words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers: of a stretch that holds none of the words only its end, which may count steps, and what a message before it goes on with."""
    number, told = 0, False
    while stretch := list(islice(lines, STRETCH)):
        text, before = "".join(stretch), told
        told = any(word in text for word in words)
        ahead = len(stretch) if told else AHEAD if before else 0
        yield from enumerate(stretch[:ahead], number + 1)
        rest = max(len(stretch) - STEPS, ahead)
        yield from enumerate(stretch[rest:], number + rest + 1)
        number += len(stretch)


def _who(line: str) -> tuple[str, str]:
    match = PREFIX.match(line) if line[:1] in STARTS or ": [" in line[:80] else None
    if match is None:
        return "", line
    return next(number for number in match.groups() if number is not None), line[match.end() :]


def _step(said: str) -> int | None:
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
