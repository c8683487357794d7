"""What to change in a server, in words."""

from __future__ import annotations

import json
from typing import Any

from memcalc.report.advise import as_flags, keys_of
from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.style import BOLD, DIM, GREEN, RED, YELLOW, Style, Unit, columns, unit_for, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.whatif.serving_advice import ServingAdvice, Tried

INDENT = " " * 4


def text(found: ServingAdvice, style: Style) -> str:
    """All of it."""
    unit = _unit(found)
    rows = [_head(unit), *(_row(one, unit) for one in found.changes)]
    lines = columns(rows, right=[False, False, True, True, True, False], width=style.width)
    table = [style.paint(lines[0], BOLD)]
    for line, one in zip(lines[1:], found.changes, strict=True):
        cost = wrap(f"costs {one.change.cost}", style.width - len(INDENT))
        table += [style.paint(line, GREEN) if one.suffices else line, *(style.paint(f"{INDENT}{part}", DIM) for part in cost.split("\n"))]
    said = style.paint(wrap(conclusion(found), style.width), GREEN if found.fits else YELLOW if found.path else RED)
    return "\n\n".join([style.paint(wrap(head(found), style.width), BOLD), *(["\n".join(table)] if found.changes else []), said])


def head(found: ServingAdvice) -> str:
    """What the server does as it is."""
    serving, verdict = found.answer.serving, found.answer.verdict
    assert serving is not None
    assert verdict is not None
    who = f"{found.job.run.code} with {found.job.model.name} on {found.job.mesh.world} × {verdict.gpu}"
    if found.fits:
        return f"{who} starts: {serving.max_concurrency:.2f} sequences of {serving.max_model_len:,} tokens at once"
    return f"{who} does not start: {verdict.refusal or 'it needs more than the card has'}"


def conclusion(found: ServingAdvice) -> str:
    """The shortest sequence, in a sentence."""
    if found.fits:
        return "It starts as it is; the changes show what would hold more."
    if not found.path:
        return "No sequence of up to three changes makes it start: it takes larger or more cards, or a smaller model."
    steps = ", then ".join(f"{change.name} ({keys_of(keys)})" for change, keys in found.path)
    flags = " ".join(as_flags(keys) for _, keys in found.path)
    return f"Shortest sequence that starts: {steps}. Flags: {flags}"


def markdown(found: ServingAdvice) -> str:
    """The same for a page."""
    rows = [[*_row(one, _unit(found)), one.change.cost] for one in found.changes]
    return "\n\n".join([f"**{head(found)}**", grid(rows, [*_head(_unit(found)), "costs"], numbers_from=2), conclusion(found)])


def comma_separated(found: ServingAdvice) -> str:
    """A line a change."""
    rows = [[t.change.name, keys_of(t.keys), t.kv_cache_bytes, t.sequences, t.longest, str(t.suffices).lower(), t.change.cost] for t in found.changes]
    return comma_rows(["change", "keys", "kv_cache_bytes", "sequences", "longest", "suffices", "cost"], rows)


def as_json(found: ServingAdvice) -> str:
    """As data."""
    changes = [
        {"name": t.change.name, "keys": t.keys, "kv_cache_bytes": t.kv_cache_bytes, "sequences": t.sequences, "longest": t.longest, "suffices": t.suffices}
        for t in found.changes
    ]
    path = [{"name": change.name, "keys": keys} for change, keys in found.path]
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "fits": found.fits, "head": head(found), "changes": changes, "path": path}
    return json.dumps(data, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- inside
def _unit(found: ServingAdvice) -> Unit:
    return unit_for(max((one.kv_cache_bytes for one in found.changes), default=1))


def _head(unit: Unit) -> list[str]:
    return ["from cheap to dear", "change", f"cache {unit.name}", "sequences", "longest", "alone"]


def _row(one: Tried, unit: Unit) -> list[str]:
    end = "starts" if one.suffices else ""
    return [one.change.name, keys_of(one.keys), unit.number(one.kv_cache_bytes), f"{one.sequences:,.2f}", f"{one.longest:,}", end]
