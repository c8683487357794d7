"""What a change does to runs, as the body of a comment on it: a line a run, its terms folded below; empty where nothing changed.

The first line is a marker that stays the same, so that the comment can be found and written anew. Model: Infracost's comments.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.report import words
from memcalc.report.style import Unit, unit_for
from memcalc.report.tables import grid
from memcalc.whatif.diff import Change, State

MARKER = "<!-- memcalc diff -->"
MAX_CHARACTERS = 65_536
"""GitHub takes no longer comment."""

CUT = "\n\n… cut: the whole is longer than a comment may be."
TERMS = 25


def markdown(found: Sequence[Change]) -> str:
    """The comment; shorter than `MAX_CHARACTERS`."""
    if not found:
        return ""
    rows = [_row(change) for change in found]
    head = [MARKER, "### GPU memory", grid(rows, ["run", "before", "now", "Δ", "peak at", "verdict"], numbers_from=1)]
    text = "\n\n".join(head)
    for change in found:
        more = "\n\n" + _details(change)
        if len(text) + len(more) + len(CUT) >= MAX_CHARACTERS:
            return _within(text) + CUT
        text += more
    return _within(text)


def _within(text: str) -> str:
    """Cut at the end of a line."""
    room = MAX_CHARACTERS - len(CUT) - 1
    return text if len(text) <= room else text[:room].rpartition("\n")[0]


def _row(change: Change) -> list[str]:
    before, now = change.before, change.now
    unit = _unit(change)
    peaks = [_peak(state, unit) for state in (before, now)]
    known = before is not None and now is not None and not before.refused and not now.refused
    difference = unit.signed(now.allocated_bytes - before.allocated_bytes) if known and before is not None and now is not None else ""
    return [f"`{_cell(change.name)}`", *peaks, difference, words.instant(now.instant) if now is not None else "", _verdicts(before, now)]


def _peak(state: State | None, unit: Unit) -> str:
    return "" if state is None else "refused" if state.refused else unit.full(state.allocated_bytes)


def _verdicts(before: State | None, now: State | None) -> str:
    said = [_verdict(state) for state in (before, now)]
    return said[1] if said[0] == said[1] or not said[0] else f"{said[0]} → **{said[1]}**"


def _verdict(state: State | None) -> str:
    if state is None:
        return ""
    if state.refused:
        return _cell(f"cannot be: {state.refused}")
    return "" if state.fits is None else words.FITS if state.fits else words.DOES_NOT_FIT


def _details(change: Change) -> str:
    unit = _unit(change)
    terms = list(change.terms())
    seen = min(TERMS, max(1, sum(1 for _, old, new in terms if unit.visible(new - old))))
    rows = [[f"`{_cell(path)}`", unit.number(old), unit.number(new), unit.signed(new - old)] for path, old, new in terms[:seen]]
    if len(terms) > seen:
        rest = terms[seen:]
        old, new = sum(t[1] for t in rest), sum(t[2] for t in rest)
        rows.append([f"{len(rest)} more", unit.number(old), unit.number(new), unit.signed(new - old)])
    if not rows:
        return f"<!-- {change.name.replace('--', '')}: no term changed -->"
    table = grid(rows, [f"at the peak, {unit.name}", "before", "now", "Δ"])
    return f"<details><summary>{_cell(change.name)}</summary>\n\n{table}\n\n</details>"


def _unit(change: Change) -> Unit:
    return unit_for(max((state.allocated_bytes for state in (change.before, change.now) if state is not None), default=0))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("\n", " ")
