"""A sweep as a table with a chart, as markdown, csv, JSON and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memcalc.report import words
from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.style import BOLD, DIM, GREEN, RED, Style, Unit, bar, columns, unit_for, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.whatif.swept import Combination, Swept

RULE = (
    "fits: what is allocated at the peak, and context, libraries and communicators, are within the capacity. The caching allocator's own share "
    "comes on top; `memcalc estimate` plays it for one run."
)
CHART, OVER = 24, 1.5
"""Columns of the chart; how far beyond the card's capacity it goes."""


def text(found: Swept, rows: Sequence[Combination], style: Style, *, more: int = 0, reasons: bool = False) -> str:
    """A table of combinations, with bars and the card's line where one number is swept.

    Args:
        found: the sweep.
        rows: the combinations to show.
        style: width and colours.
        more: how many were left out.
        reasons: say why what cannot be cannot.
    """
    parts = [_table(found, rows, style)] if rows else []
    if more:
        parts.append(style.paint(f"… {more:,} more (--rows shows them, --format csv has all)", DIM))
    parts.append(summary(found, reasons=reasons))
    if reasons:
        parts.append("\n".join(wrap(f"{count:,} × {reason}", style.width, indent="  ") for reason, count in found.reasons().items()))
    if any(row.fits is not None for row in rows):
        parts.append(style.paint(wrap(RULE, style.width), DIM))
    return "\n\n".join(part for part in parts if part)


def summary(found: Swept, *, reasons: bool = False) -> str:
    """How many there are of each kind, in one line; `reasons` stand below it."""
    counts = found.counts()
    total = sum(counts.values())
    fits, fails = counts["fits"], counts["does not fit"]
    judged = [f"{fits:,} fit{'s' if fits == 1 else ''}", f"{fails:,} {'does' if fails == 1 else 'do'} not"] if fits + fails else []
    invalid = [f"{counts['invalid']:,} cannot be{'' if reasons else ' (--show-invalid says why)'}"] if counts["invalid"] else []
    return f"{total:,} combination{'s' if total != 1 else ''}{': ' if judged or invalid else ''}{', '.join([*judged, *invalid])}"


def markdown(found: Swept, rows: Sequence[Combination], *, more: int = 0, reasons: bool = False) -> str:
    """The same for a page."""
    unit = _unit(rows)
    lines = [_cells(row, unit, found) for row in rows]
    table = grid(lines, _head(found, unit), numbers_from=0)
    listed = [f"- {count:,} × {reason}" for reason, count in found.reasons().items()] if reasons else []
    left = [f"- … {more:,} more"] if more else []
    return "\n".join([table, "", f"- {summary(found, reasons=reasons)}", *left, *listed])


def comma_separated(found: Swept, rows: Sequence[Combination]) -> str:
    """A line a combination."""
    served = ["sequences", "longest"] if any(points.held for points in found.points) else []
    head = [*found.axes, "fits", "peak_bytes", "instant", "need_bytes", "capacity_bytes", "reason", *served]
    lines = [[*(row.values[key] for key in found.axes), *(_plain(value) for value in _facts(row).values())] for row in rows]
    return comma_rows(head, [line + [""] * (len(head) - len(line)) for line in lines])


def as_json(found: Swept, rows: Sequence[Combination]) -> str:
    """One document."""
    return json.dumps(
        {"schema_version": SCHEMA_VERSION, "counts": found.counts(), "combinations": [_record(row) for row in rows]}, indent=1, ensure_ascii=False
    )


def as_json_lines(rows: Sequence[Combination]) -> str:
    """One JSON object a line."""
    return "\n".join(json.dumps(_record(row), ensure_ascii=False) for row in rows)


# ---------------------------------------------------------------------- inside
def _record(row: Combination) -> dict[str, Any]:
    return {"values": row.values, **_facts(row)}


def _facts(row: Combination) -> dict[str, Any]:
    return {
        "fits": row.fits,
        "peak_bytes": row.peak_bytes,
        "instant": row.instant or None,
        "need_bytes": None if row.peak_bytes is None else row.need_bytes,
        "capacity_bytes": row.capacity_bytes,
        "reason": row.reason,
        **({} if row.held is None else row.held._asdict()),
    }


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _unit(rows: Sequence[Combination]) -> Unit:
    return unit_for(max((row.peak_bytes or 0 for row in rows), default=0))


def _head(found: Swept, unit: Unit) -> list[str]:
    served = ["sequences", "longest"] if any(points.held for points in found.points) else []
    return [*found.axes, f"peak {unit.name}", "instant", *served, "verdict"]


def _cells(row: Combination, unit: Unit, found: Swept) -> list[str]:
    values = [str(row.values[key]) for key in found.axes]
    if row.peak_bytes is None:
        served = [""] * 2 * any(points.held for points in found.points)
        return [*values, "", "", *served, f"cannot be: {row.reason}"]
    served = [] if row.held is None else [f"{row.held.sequences:,.2f}", f"{row.held.longest:,}"]
    return [*values, unit.number(row.peak_bytes), words.instant(row.instant), *served, _verdict(row)]


def _verdict(row: Combination) -> str:
    return {True: words.FITS, False: words.DOES_NOT_FIT, None: ""}[row.fits]


def _table(found: Swept, rows: Sequence[Combination], style: Style) -> str:
    unit = _unit(rows)
    cells = [_head(found, unit), *(_cells(row, unit, found) for row in rows)]
    served = [True] * (len(cells[0]) - len(found.axes) - 3)
    right = [*(all(isinstance(row.values[key], int) for row in rows) for key in found.axes), True, False, *served, False]
    lines = columns(cells, right=right, width=style.width)
    chart = list(_chart(found, rows))
    room = max(map(len, lines)) + 2
    if chart and room + CHART <= style.width and not any("\n" in line for line in lines):
        lines = [f"{line:<{room}}{drawn}".rstrip() for line, drawn in zip(lines, ["", *chart], strict=True)]
        lines[0] = f"{lines[0]:<{room}}{_legend(rows)}".rstrip()
    painted = [style.paint(line, *_colour(row)) for line, row in zip(lines[1:], rows, strict=True)]
    return "\n".join([style.paint(lines[0], BOLD), *painted])


def _colour(row: Combination) -> tuple[str, ...]:
    colours: Mapping[bool | None, tuple[str, ...]] = {True: (GREEN,), False: (RED,), None: ()}
    return colours[row.fits]


def _chart(found: Swept, rows: Sequence[Combination]) -> Iterator[str]:
    """A bar for each row where one number is swept; the card's line stands in each, and what goes beyond the chart ends in an arrow."""
    moving = [key for key, values in found.axes.items() if len(values) > 1]
    if len(moving) != 1 or not all(isinstance(value, int) for value in found.axes[moving[0]]):
        return
    room = max((row.room_bytes or 0 for row in rows), default=0)
    peaks = [row.need_bytes if row.room_bytes else row.peak_bytes or 0 for row in rows]
    top = max(min(max(peaks), OVER * room) if room else max(peaks), 1)
    at = round(room / top * (CHART - 1)) if room else None
    for peak in peaks:
        line = list(f"{bar(peak / top, CHART):<{CHART}}")
        if peak > top:
            line[-1] = "▶"
        if at is not None and at < CHART:
            line[at] = "┃" if line[at] == " " else "╂"
        yield "".join(line)


def _legend(rows: Sequence[Combination]) -> str:
    room = max((row.room_bytes or 0 for row in rows), default=0)
    return f"┃ {unit_for(room).full(room)}" if room else ""
