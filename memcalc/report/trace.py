"""An estimate beside a trace of the real code, and who is alive at the peak."""

from __future__ import annotations

import json
from typing import Any

from memcalc.report.style import BOLD, DIM, GREEN, YELLOW, Style, columns, unit_for
from memcalc.report.words import count, instant
from memcalc.whatif.trace import Agreement

CLOSE = 0.01
"""A difference that deserves no colour."""

SHOWN = 20
"""Lines of the census."""


def text(found: Agreement, style: Style) -> str:
    """The agreement, instant by instant, and the census."""
    traced = found.trace
    unit = unit_for(max(traced.instants.values()))
    head = ["instant", f"estimate {unit.name}", f"trace {unit.name}", "difference bytes", "error"]
    rows = []
    for name, mine, real, error in found.rows():
        label = f"{instant(name)}{' ◀ peak' if name == traced.peak else ''}"
        if mine is None or error is None:
            rows.append([label, "·", unit.number(real), "·", "·"])
        else:
            rows.append([label, unit.number(mine), unit.number(real), f"{mine - real:+,}", f"{error:+.4%}"])
    lines = columns([head, *rows], right=[False, True, True, True, True])
    worst = max((abs(error) for *_, error in found.rows() if error is not None), default=None)
    parts = [_params(found), "", style.paint(lines[0], DIM), *lines[1:], ""]
    if worst is None:
        parts.append(style.paint(f"no estimate: {found.why_none}", YELLOW))
    else:
        parts.append(style.paint(f"largest difference {worst:.4%}", GREEN if worst <= CLOSE else YELLOW))
    return "\n".join([*parts, "", *_census(found, style)])


def _params(found: Agreement) -> str:
    traced, estimate = found.trace, found.estimate
    counted = f"{traced.num_params:,} parameters ({count(traced.num_params)}), {traced.num_trainable:,} trainable"
    if estimate is None:
        return f"the real model has {counted}"
    same = estimate.model.total_params == traced.num_params
    return f"the real model has {counted}; the estimate counts {'the same' if same else f'{estimate.model.total_params:,}'}"


def _census(found: Agreement, style: Style) -> list[str]:
    holdings = found.trace.holdings
    unit = unit_for(max((holding.total_bytes for holding in holdings), default=0))
    rows = [["made by", "dtype", "shape", "each", "count", unit.name]]
    for holding in holdings[:SHOWN]:
        shape = " × ".join(map(str, holding.shape))
        rows.append([holding.operator, holding.dtype, shape, f"{holding.num_bytes:,}", str(holding.copies), unit.number(holding.total_bytes)])
    rest = holdings[SHOWN:]
    if rest:
        rows.append([f"{len(rest)} more", "", "", "", str(sum(h.copies for h in rest)), unit.number(sum(h.total_bytes for h in rest))])
    lines = columns(rows, right=[False, False, False, True, True, True], width=style.width)
    return [style.paint(f"Alive at the peak of the trace, in {instant(found.trace.peak)}", BOLD), style.paint(lines[0], DIM), *lines[1:]]


def as_json(found: Agreement) -> str:
    """The same as JSON."""
    traced = found.trace
    data: dict[str, Any] = {
        "schema_version": 1,
        "params": {"total": traced.num_params, "trainable": traced.num_trainable, "estimated": found.estimate.model.total_params if found.estimate else None},
        "instants": [{"name": name, "estimated_bytes": mine, "traced_bytes": real, "error": error} for name, mine, real, error in found.rows()],
        "peak": {"instant": traced.peak, "traced_bytes": traced.instants[traced.peak]},
        "alive": [{"operator": h.operator, "dtype": h.dtype, "shape": list(h.shape), "bytes": h.num_bytes, "count": h.copies} for h in traced.holdings],
        "no_estimate": found.why_none or None,
    }
    return json.dumps(data, indent=1, ensure_ascii=False)
