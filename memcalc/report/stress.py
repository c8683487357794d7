"""Incidents in words: a line for each, when it strikes, what it brings, and whether the run survives."""

from __future__ import annotations

import json
from typing import Any

from memcalc.report import lengths, words
from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.style import BOLD, DIM, GREEN, RED, Style, Unit, columns, display_width, unit_for, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.units import GB
from memcalc.whatif.stress import Stressed
from memcalc.whatif.stress.situation import Incident

HEAD = ("incident", "strikes in", "brings", "most of it", "needs then", "")
INSTANT, MOST = 1, 3
"""Columns that a narrow page has no room for."""
SURVIVES, DIES = "survives", "does not survive"
INDENT = " " * 4
TERMS = 4
"""Terms of an incident that are listed."""


def text(found: Stressed, style: Style) -> str:
    """The table, what cannot strike, and the sum of it."""
    unit = _unit(found)
    struck = [incident for incident in found.incidents if incident.survives is not None]
    lines, left_out = _lines([list(HEAD), *(_row(incident, unit) for incident in struck)], style.width)
    table = [style.paint(lines[0], BOLD)]
    for line, incident in zip(lines[1:], struck, strict=True):
        table.append(style.paint(line, *([] if incident.survives else [RED])))
        strikes = f"in {words.instant(incident.instant)}" if INSTANT in left_out else ""
        told = (strikes, incident.title, terms(incident, unit, least=1 if MOST in left_out else 2), incident.note, _on_host(incident))
        said = wrap("; ".join(filter(None, told)), style.width - len(INDENT))
        table += [style.paint(f"{INDENT}{part}", DIM) for part in said.split("\n")]
    parts = [style.paint(wrap(head(found), style.width), BOLD), "\n".join(table)]
    if found.spread is not None:
        parts.append(lengths.text(found.spread, style))
    if spared(found):
        parts.append(style.paint(wrap(spared(found), style.width), DIM))
    parts.append(style.paint(wrap(conclusion(found), style.width), GREEN if found.survives else RED))
    return "\n\n".join(parts)


def head(found: Stressed) -> str:
    """The run without any incident."""
    unit, room = _unit(found), found.room
    verb = "fits" if found.fits else "does not fit"
    needs = f"{found.job.model.name} needs {unit.full(found.need_bytes)} in {words.instant(found.instant)}"
    return f"{needs} and {verb} within {unit.full(room.room_bytes)} of {room.name}"


def terms(incident: Incident, unit: Unit, *, least: int = 2) -> str:
    """The terms that it brings, the largest first, where there are at least so many."""
    shown = [(path, num_bytes) for path, num_bytes in incident.extra.items() if unit.visible(num_bytes)]
    if len(shown) < least:
        return ""
    rest = sum(num_bytes for _, num_bytes in shown[TERMS:])
    listed = [f"{path} {unit.signed(num_bytes)}" for path, num_bytes in shown[:TERMS]]
    return ", ".join([*listed, *([f"{len(shown) - TERMS} more {unit.signed(rest)}"] if len(shown) > TERMS else [])])


def spared(found: Stressed) -> str:
    """What cannot strike, and why; empty where all can."""
    lines = [f"{incident.name} ({incident.note})" for incident in found.incidents if incident.survives is None]
    return f"cannot strike this run: {'; '.join(lines)}" if lines else ""


def conclusion(found: Stressed) -> str:
    """How many it survives, and which not."""
    struck = [incident for incident in found.incidents if incident.survives is not None]
    dies = [incident.name for incident in struck if not incident.survives]
    if not found.fits:
        return "The run does not fit as it is: see `memcalc advise`."
    if not dies:
        return f"The run survives {_count(len(struck))}."
    if len(struck) == 1:
        return f"The run does not survive the one incident, {dies[0]}."
    return f"The run survives {len(struck) - len(dies)} of {_count(len(struck))}; it does not survive {', '.join(dies)}."


def markdown(found: Stressed) -> str:
    """The same for a page."""
    unit = _unit(found)
    struck = [incident for incident in found.incidents if incident.survives is not None]
    rows = [[incident.name, incident.title, *_row(incident, unit)[1:]] for incident in struck]
    table = grid(rows, [HEAD[0], "what happens", *HEAD[1:]], numbers_from=7)
    page = lengths.markdown(found.spread) if found.spread is not None else ""
    return "\n\n".join(part for part in (f"**{head(found)}**", table, page, spared(found), conclusion(found)) if part)


def comma_separated(found: Stressed) -> str:
    """A line for each."""
    rows = [
        [
            i.name,
            i.title,
            i.instant,
            i.extra_bytes,
            i.peak_bytes,
            i.need_bytes,
            "" if i.survives is None else str(i.survives).lower(),
            i.host_bytes,
            i.note,
            i.source,
        ]
        for i in found.incidents
    ]
    return comma_rows(["incident", "title", "instant", "extra_bytes", "peak_bytes", "need_bytes", "survives", "host_bytes", "note", "source"], rows)


def as_json(found: Stressed) -> str:
    """As data."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "gpu": found.room.name,
        "room_bytes": found.room.room_bytes,
        "fits": found.fits,
        "survives": found.survives,
        "instant": found.instant,
        "peak_bytes": found.peak_bytes,
        "need_bytes": found.need_bytes,
        "longest": found.longest,
        "lengths": None if found.spread is None else lengths.data(found.spread),
        "incidents": [{**i._asdict(), "extra": dict(i.extra), "extra_bytes": i.extra_bytes} for i in found.incidents],
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- inside
def _unit(found: Stressed) -> Unit:
    return unit_for(max(found.need_bytes, found.room.room_bytes))


def _lines(rows: list[list[str]], width: int) -> tuple[list[str], tuple[int, ...]]:
    """Rows as lines; on a narrow page columns are left out, which what is said below them then tells."""
    right = [False, False, True, False, True, False]
    for left_out in ((), (MOST,), (MOST, INSTANT)):
        kept = [i for i in range(len(HEAD)) if i not in left_out]
        lines = columns([[row[i] for i in kept] for row in rows], right=[right[i] for i in kept], width=width if left_out else None)
        if max(map(display_width, "\n".join(lines).split("\n"))) <= width:
            break
    return lines, left_out


def _row(incident: Incident, unit: Unit) -> list[str]:
    largest = max(incident.extra.items(), key=lambda item: abs(item[1]), default=("", 0))
    most = f"{largest[0]} {unit.number(largest[1])}" if unit.visible(largest[1]) else ""
    return [
        incident.name,
        words.instant(incident.instant),
        unit.signed(incident.extra_bytes) if unit.visible(incident.extra_bytes) else "nothing",
        most,
        unit.full(incident.need_bytes),
        SURVIVES if incident.survives else DIES,
    ]


def _on_host(incident: Incident) -> str:
    return f"{incident.host_bytes / GB:,.1f} GB on the host" if incident.host_bytes else ""


def _count(number: int) -> str:
    return "the one incident" if number == 1 else f"{number} incidents"
