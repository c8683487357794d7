"""A comparison as a table, term by term and signed, with one sentence for each run that says what moved and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from string import ascii_uppercase
from typing import Any

from memcalc.engine.result import Estimate
from memcalc.report import words
from memcalc.report.contract import as_dict
from memcalc.report.rows import Row, rows_of
from memcalc.report.style import BOLD, DIM, Style, Unit, columns, display_width, shorten, unit_for
from memcalc.report.tables import comma_rows, grid
from memcalc.report.text import colour_of, labelled
from memcalc.whatif.compare import Comparison, kinds

LABEL, MIN_LABEL, GAP = 40, 16, 2
MOVERS = 3
CUT_FROM_STAGE = {"optimizer": 1, "gradients": 2, "weights": 3}


def text(found: Comparison, style: Style) -> str:
    """The whole comparison."""
    unit = _unit(found)
    letters = letters_of(found)
    rows = rows_of(found.peaks())
    cells = [["", *_heads(letters)], *(["  " * row.depth + row.label, *_cells(row, unit)] for row in rows)]
    cells += [["allocated", *_cells(_total(found), unit)], *_facts(found, unit)]
    lines = "\n\n".join("\n".join(_lines([[row[i] for i in shown] for row in cells], len(rows), style)) for shown in _shares(cells, style.width))
    legend = [labelled(letter, f"{name}: {_about(estimate)}", style) for letter, name, estimate in zip(letters, found.names, found.estimates, strict=True)]
    verdicts = [
        labelled(f"{letter} verdict", words.verdict_line(estimate.verdict), style, colour_of(estimate.verdict))
        for letter, estimate in zip(letters, found.estimates, strict=True)
        if estimate.verdict is not None
    ]
    said = [labelled(f"{letters[i]} − {letters[0]}", sentence(found, i), style) for i in range(1, len(letters))]
    head = style.paint(f"{unit.name} on the most loaded rank of each, at its own peak", BOLD)
    return "\n".join([*legend, "", head, lines, "", *said, *verdicts])


def sentence(found: Comparison, i: int) -> str:
    """What moved between the first run and another, and why."""
    unit = _unit(found)
    change = found.difference_bytes(i)
    moved = sorted(kinds(found), key=lambda kind: -abs(kind[1][i] - kind[1][0]))
    shown = [_mover(found, i, kind, values, unit) for kind, values in moved[:MOVERS] if unit.visible(values[i] - values[0])]
    size = f"{unit.full(abs(change))} {'more' if change > 0 else 'less'}" if unit.visible(change) else "as much"
    head = f"{found.names[i]} allocates {size} {'than' if unit.visible(change) else 'as'} {found.names[0]}"
    changes = [f"{key} {_value(there)} → {_value(here)}" for key, there, here in found.changes(i)]
    why = f", with {', '.join(changes)}" if changes else ", with nothing changed that bears on it"
    notes = [note for note in found.estimates[i].notes if note not in found.estimates[0].notes]
    tail = f"; {'; '.join(notes)}" if notes else ""
    movers = f": {', '.join(shown)}" if shown else ""
    return f"{head}{movers}{why}{tail}."


def as_json(found: Comparison) -> str:
    """The comparison as JSON: every answer whole, the terms side by side, and the sentences."""
    data: dict[str, Any] = {
        "schema_version": 1,
        "runs": [{"name": name, **as_dict(estimate)} for name, estimate in zip(found.names, found.estimates, strict=True)],
        "terms": [{"path": path, "bytes": list(values), "differences": [value - values[0] for value in values]} for path, values in found.terms().items()],
        "summary": [sentence(found, i) for i in range(1, len(found.names))],
    }
    return json.dumps(data, indent=1, ensure_ascii=False, default=str)


def markdown(found: Comparison) -> str:
    """The comparison as a markdown table, with the sentences below."""
    unit = _unit(found)
    rows = rows_of(found.peaks())
    head = [unit.name, *(part for i, name in enumerate(found.names) for part in ((name, "Δ") if i else (name,)))]
    cells = [[f"{'&emsp;' * row.depth}{row.label}", *_cells(row, unit)] for row in rows]
    cells += [["**allocated**", *_cells(_total(found), unit)], *_facts(found, unit)]
    said = [f"- {sentence(found, i)}" for i in range(1, len(found.names))]
    return "\n\n".join([grid(cells, head), "\n".join(said)])


def comma_separated(found: Comparison) -> str:
    """A line for every path: bytes in each run."""
    return comma_rows(["path", *found.names], [[path, *values] for path, values in found.terms().items()])


def letters_of(found: Comparison) -> list[str]:
    """A short name for each run."""
    return [ascii_uppercase[i] if i < 26 else f"R{i + 1}" for i in range(len(found.names))]


# ---------------------------------------------------------------------- inside
def _unit(found: Comparison) -> Unit:
    return unit_for(max(estimate.most_loaded.allocated_bytes for estimate in found.estimates))


def _about(estimate: Estimate) -> str:
    return f"{estimate.model.name}, {words.cards_line(estimate)}"


def _heads(letters: Sequence[str]) -> list[str]:
    return [part for i, letter in enumerate(letters) for part in ((letter, f"{letter} − {letters[0]}") if i else (letter,))]


def _cells(row: Row, unit: Unit) -> list[str]:
    found: list[str] = []
    for i, value in enumerate(row.values):
        found.append(unit.number(value) if unit.visible(value) else "·")
        if i:
            change = value - row.values[0]
            found.append(unit.signed(change) if unit.visible(change) else "·")
    return found


def _total(found: Comparison) -> Row:
    return Row("allocated", ("allocated",), 0, tuple(estimate.most_loaded.allocated_bytes for estimate in found.estimates))


def _facts(found: Comparison, unit: Unit) -> Iterator[list[str]]:
    if all(map(words.shows_card, found.estimates)):
        yield ["on the card", *_cells(Row("", (), 0, tuple(estimate.most_loaded.device_bytes for estimate in found.estimates)), unit)]
    yield ["peak in", *_spread([words.instant(estimate.peak.name) for estimate in found.estimates])]
    pools = [estimate.serving for estimate in found.estimates]
    if any(pools):
        yield ["sequences", *_spread([f"{pool.max_concurrency:,.2f}" if pool else "" for pool in pools])]
        yield ["longest", *_spread([f"{pool.largest_model_len:,}" if pool else "" for pool in pools])]
    if any(len(estimate.ranks) > 1 for estimate in found.estimates):
        yield ["of rank", *_spread([words.rank_name(estimate.most_loaded) for estimate in found.estimates])]
    if any(estimate.verdict for estimate in found.estimates):
        yield ["verdict", *_spread([words.state(estimate.verdict) if estimate.verdict else "" for estimate in found.estimates])]


def _shares(cells: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Columns of tables that a page has room for: labels and the first run, and of the others as many as go beside them, each with its difference."""
    widths = [max(display_width(row[i]) for row in cells) + GAP for i in range(len(cells[0]))]
    found: list[list[int]] = []
    left = 0
    for i in range(2, len(widths), 2):
        each = widths[i] + widths[i + 1]
        if not found or each > left:
            found.append([0, 1])
            left = width - MIN_LABEL - widths[1]
        found[-1] += [i, i + 1]
        left -= each
    return found or [[0, 1]]


def _lines(cells: Sequence[Sequence[str]], num_rows: int, style: Style) -> list[str]:
    """One table: the heading, the rows, and under a line what they come to."""
    numbers = max(map(display_width, columns([row[1:] for row in cells])))
    shown = [[shorten(row[0], max(min(LABEL, style.width - numbers - GAP), MIN_LABEL)), *row[1:]] for row in cells]
    lines = columns(shown, right=[False, *([True] * (len(cells[0]) - 1))])
    lines[0] = style.paint(lines[0], DIM)
    lines.insert(num_rows + 1, style.paint("─" * max(map(len, lines)), DIM))
    return lines


def _spread(cells: Sequence[str]) -> list[str]:
    return [part for i, cell in enumerate(cells) for part in ((cell, "") if i else (cell,))]


def _mover(found: Comparison, i: int, kind: str, values: Sequence[int], unit: Unit) -> str:
    before, after = values[0], values[i]
    cuts = _cut(found.estimates[0], kind), _cut(found.estimates[i], kind)
    explained = kind in CUT_FROM_STAGE and before and after and cuts[0] != cuts[1] and abs(after / before * cuts[1] / cuts[0] - 1) < 0.05
    reason = f" (cut {cuts[1]} ways, not {cuts[0]})" if explained else ""
    return f"{kind} {unit.signed(after - before)}{reason}"


def _cut(estimate: Estimate, kind: str) -> int:
    """Into how many parts a kind of state is cut over the ranks, as far as the degrees and the stage say."""
    sharding = estimate.asked.get("sharding", {})
    parts = int(sharding.get("tp", 1)) * int(sharding.get("pp", 1))
    stage = CUT_FROM_STAGE.get(kind, 4)
    zero = int(sharding.get("zero") or 0)
    return parts * (int(sharding.get("dp") or 1) // int(sharding.get("dp_replicate") or 1) if zero >= stage else 1)


def _value(value: Any) -> str:
    return {None: "none", True: "on", False: "off"}.get(value, str(value)) if value is None or isinstance(value, bool) else str(value)
