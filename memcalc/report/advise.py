"""What to change, in words: each rung with what it saves and costs, and the shortest sequence that fits."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from memcalc.report import words
from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.style import BOLD, DIM, GREEN, RED, YELLOW, Style, Unit, columns, unit_for, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.whatif.advise import Advice, Taken

HEAD = ("from cheap to dear", "change", "saves at the peak", "needs then", "alone")
INDENT = " " * 4


def text(found: Advice, style: Style) -> str:
    """All of it."""
    unit = _unit(found)
    rows = [list(HEAD), *(_row(taken, unit) for taken in found.rungs)]
    lines = columns(rows, right=[False, False, True, True, False], width=style.width)
    table = "\n".join([style.paint(lines[0], BOLD), *(_with_cost(line, taken, style, found) for line, taken in zip(lines[1:], found.rungs, strict=True))])
    said = style.paint(wrap(conclusion(found), style.width), GREEN if found.fits else YELLOW if found.path else RED)
    return "\n\n".join([style.paint(wrap(head(found), style.width), BOLD), *([table] if found.rungs else []), said])


def head(found: Advice) -> str:
    """What the run needs as it is."""
    unit, room = _unit(found), found.room
    verb = "fits" if found.fits else "does not fit"
    return (
        f"{found.job.model.name} needs {unit.full(found.need_bytes)} in {words.instant(found.instant)} and {verb} "
        f"within {unit.full(room.room_bytes)} of {room.name}"
    )


def conclusion(found: Advice) -> str:
    """The shortest sequence, in a sentence."""
    unit = _unit(found)
    if found.fits:
        return "It fits as it is; the rungs show what would leave more room."
    if not found.path:
        return "No sequence of up to four rungs makes it fit: it takes larger or more cards, or a smaller model."
    steps = ", then ".join(f"{rung.name} ({keys_of(keys)})" for rung, keys in found.path)
    note = f" This changes {_task(found)}; nothing else suffices." if any(rung.changes_task for rung, _ in found.path) else ""
    return f"Shortest sequence that fits: {steps}; it then needs {unit.full(found.path_need_bytes)}.{note} Flags: {flags_of(found)}"


def flags_of(found: Advice) -> str:
    """The sequence as flags."""
    keys: dict[str, Any] = {}
    for _, some in found.path:
        keys |= some
    return as_flags(keys)


def as_flags(keys: Mapping[str, Any]) -> str:
    """``--zero 2 --dp 4``."""
    return " ".join(_flag(key.replace("_", "-"), value) for key, value in keys.items())


def _flag(name: str, value: object) -> str:
    return f"--{name}" if value is True else f"--no-{name}" if value is False else f"--{name} {shlex.quote(_plain(value))}"


def keys_of(keys: Mapping[str, Any]) -> str:
    """``zero 2, dp 4``."""
    return ", ".join(f"{key} {'on' if value is True else 'off' if value is False else _plain(value)}" for key, value in keys.items())


def _plain(value: object) -> str:
    """A value as a run file has it; a map in one line."""
    return "none" if value is None else json.dumps(value).replace('"', "") if isinstance(value, Mapping) else str(value)


def markdown(found: Advice) -> str:
    """The same for a page."""
    unit = _unit(found)
    rows = [[*_row(taken, unit), taken.rung.cost] for taken in found.rungs]
    return "\n\n".join([f"**{head(found)}**", grid(rows, [*HEAD, "costs"], numbers_from=2), conclusion(found)])


def comma_separated(found: Advice) -> str:
    """A line a rung."""
    rows = [[t.rung.name, keys_of(t.keys), t.saves_bytes, t.at_instant_bytes, t.need_bytes, str(t.suffices).lower(), t.rung.cost] for t in found.rungs]
    return comma_rows(["rung", "change", "saves_bytes", "at_instant_bytes", "need_bytes", "suffices", "cost"], rows)


def as_json(found: Advice) -> str:
    """As data."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "fits": found.fits,
        "need_bytes": found.need_bytes,
        "instant": found.instant,
        "gpu": found.room.name,
        "room_bytes": found.room.room_bytes,
        "rungs": [
            {
                "name": t.rung.name,
                "keys": t.keys,
                "saves_bytes": t.saves_bytes,
                "at_instant_bytes": t.at_instant_bytes,
                "need_bytes": t.need_bytes,
                "suffices": t.suffices,
                "cost": t.rung.cost,
            }
            for t in found.rungs
        ],
        "path": [{"name": rung.name, "keys": keys} for rung, keys in found.path],
        "path_need_bytes": found.path_need_bytes if found.path or found.fits else None,
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- inside
def _unit(found: Advice) -> Unit:
    return unit_for(max(found.need_bytes, found.room.room_bytes))


def _row(taken: Taken, unit: Unit) -> list[str]:
    hidden = f" (of {unit.number(taken.at_instant_bytes)} there)" if unit.number(taken.saves_bytes) != unit.number(taken.at_instant_bytes) else ""
    name = f"{taken.rung.name}{' *' if taken.rung.changes_task else ''}"
    return [name, keys_of(taken.keys), f"{unit.number(taken.saves_bytes)}{hidden}", unit.full(taken.need_bytes), "suffices" if taken.suffices else ""]


def _task(found: Advice) -> str:
    return "what is read" if found.job.run.task == "inference" else "what is trained"


def _with_cost(line: str, taken: Taken, style: Style, found: Advice) -> str:
    changes = f"changes {_task(found)}; " if taken.rung.changes_task else ""
    cost = wrap(f"costs {changes}{taken.rung.cost}", style.width, indent=INDENT)
    return "\n".join(
        [
            style.paint(line, GREEN) if taken.suffices else line,
            *(style.paint(f"{INDENT if i == 0 else ''}{part}", DIM) for i, part in enumerate(cost.split("\n"))),
        ]
    )
