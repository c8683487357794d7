"""Several runs, a row each: what each needs, what its card offers, the worst first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memcalc.engine.result import Estimate
from memcalc.report import words
from memcalc.report.style import BOLD, Style, columns, shorten, unit_for
from memcalc.report.tables import comma_rows, grid

HEAD = ("run", "model", "peak at", "needs", "card offers", "verdict")


class Checked(NamedTuple):
    """One run.

    Attributes:
        name: as typed.
        estimate: of it; None where it was refused.
        refusal: why.
    """

    name: str
    estimate: Estimate | None
    refusal: str = ""


def sort_key(row: Checked) -> tuple[int, float]:
    """Refused runs first, then by how much of its card a run needs, or by its bytes."""
    if row.estimate is None:
        return (0, 0.0)
    verdict = row.estimate.verdict
    needs = row.estimate.ranks[0].device_bytes
    share = needs / verdict.capacity_bytes if verdict is not None and verdict.capacity_bytes else needs / 2**60
    return (1, -share)


def text(rows: Sequence[Checked], style: Style) -> str:
    """A table."""
    lines = columns([HEAD, *(_cells(row) for row in rows)], right=[False, False, False, True, True, False], width=style.width)
    return "\n".join([style.paint(lines[0], BOLD), *lines[1:]])


def markdown(rows: Sequence[Checked]) -> str:
    """A Markdown table."""
    return grid([_cells(row) for row in rows], HEAD, numbers_from=3)


def comma_separated(rows: Sequence[Checked]) -> str:
    """Comma-separated values, bytes as they are."""
    return comma_rows(HEAD, [list(_facts(row).values()) for row in rows])


def as_json(rows: Sequence[Checked], *, inputs: Mapping[str, Any] | None = None) -> str:
    """JSON: a list of runs."""
    data = [{**_facts(row), "inputs": inputs[row.name]} if inputs and row.name in inputs else _facts(row) for row in rows]
    return json.dumps({"schema_version": 1, "runs": data}, indent=1, default=str)


def _facts(row: Checked) -> dict[str, Any]:
    if row.estimate is None:
        return {"run": row.name, "model": None, "instant": None, "device_bytes": None, "capacity_bytes": None, "verdict": f"refused: {row.refusal}"}
    rank, verdict = row.estimate.ranks[0], row.estimate.verdict
    said = "no card named" if verdict is None else "does not fit" if not verdict.fits else "tight" if verdict.tight else "fits"
    capacity = None if verdict is None else verdict.capacity_bytes
    return {
        "run": row.name,
        "model": row.estimate.model.name,
        "instant": rank.peak.name,
        "device_bytes": rank.device_bytes,
        "capacity_bytes": capacity,
        "verdict": said,
    }


def _cells(row: Checked) -> tuple[str, ...]:
    facts = _facts(row)
    needs, capacity = facts["device_bytes"], facts["capacity_bytes"]
    shown = ["" if size is None else unit_for(size).full(size) for size in (needs, capacity)]
    peak = words.instant(facts["instant"]) if facts["instant"] else ""
    return (shorten(row.name, 44), shorten(str(facts["model"] or ""), 28), peak, *shown, shorten(_said(row, str(facts["verdict"])), 60))


def _said(row: Checked, verdict: str) -> str:
    """The verdict; of a server that finds its own cache too small, that; of one that starts, how many sequences it holds."""
    answer = row.estimate
    if answer is None or answer.serving is None or answer.verdict is None:
        return verdict
    if answer.verdict.refusal and answer.verdict.headroom_bytes >= 0:
        return f"does not start: cache for {answer.serving.largest_model_len:,} tokens, not for {answer.serving.max_model_len:,}"
    held = f"{answer.serving.max_concurrency:,.1f} × {answer.serving.max_model_len:,} tokens"
    return f"{verdict}, {held}" if answer.verdict.fits else verdict


__all__ = ["Checked", "as_json", "comma_separated", "markdown", "sort_key", "text"]
