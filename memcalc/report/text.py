"""An estimate as the table that people read on a terminal; plain text that looks well when piped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memcalc.engine.result import Estimate, Instant, Verdict
from memcalc.report import words
from memcalc.report.explain import explained
from memcalc.report.rows import Row, rows_of
from memcalc.report.style import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Style, Unit, bar, columns, display_width, pad, shorten, wrap

LABEL, MIN_LABEL, MIN_BAR, MAX_BAR, GAP = 38, 16, 8, 20, 2
NOTE_INDENT = " " * 10
MARK = "▼ peak"


def text(estimate: Estimate, style: Style, *, explain: bool = False, ranks: bool = False) -> str:
    """The whole answer.

    Args:
        estimate: what to show.
        style: width and colours.
        explain: add every term's formula with its numbers, and its source.
        ranks: add a table of every kind of rank.
    """
    unit = words.unit_of(estimate)
    parts = [_asked(estimate, style), _instants(estimate, unit, style)]
    if ranks or len(estimate.ranks) > 1:
        parts.append(_ranks(estimate, unit, style))
    if explain:
        parts.append(explained(estimate, style))
    parts.append(_closing(estimate, unit, style))
    return "\n\n".join(parts)


def last_line(estimate: Estimate, style: Style) -> str:
    """The one line that says it all."""
    if estimate.verdict is not None:
        return style.paint(words.verdict_line(estimate.verdict), colour_of(estimate.verdict))
    return words.peak_line(estimate, words.unit_of(estimate))


def colour_of(verdict: Verdict) -> str:
    """Green, yellow or red."""
    return {words.FITS: GREEN, words.TIGHT: YELLOW}.get(words.state(verdict), RED)


def labelled(label: str, line: str, style: Style, *codes: str) -> str:
    """A line under its label, wrapped beside it."""
    wrapped = wrap(line, style.width, indent=NOTE_INDENT)
    if codes:
        wrapped = "\n".join(style.paint(part, *codes) for part in wrapped.split("\n"))
    return f"{style.paint(pad(label, len(NOTE_INDENT)), DIM)}{wrapped}"


# ---------------------------------------------------------------------- parts
def _asked(estimate: Estimate, style: Style) -> str:
    lines = [
        labelled("model", words.model_line(estimate), style),
        labelled("job", words.job_line(estimate.asked), style),
        labelled("cards", words.cards_line(estimate), style),
    ]
    also = words.other_keys(estimate.asked)
    if also:
        lines.append(labelled("also", ", ".join(also), style))
    lines += [labelled("assumed" if i == 0 else "", line, style) for i, line in enumerate(estimate.assumptions)]
    return "\n".join(lines)


def _instants(estimate: Estimate, unit: Unit, style: Style) -> str:
    rank = estimate.most_loaded
    shown = rank.instants
    peak = shown.index(rank.peak)
    return "\n".join(
        [
            style.paint(wrap(f"{unit.name} {words.rank_line(estimate)}", style.width), BOLD),
            *table(rows_of([instant.terms for instant in shown]), shown, peak, unit, style),
        ]
    )


def table(rows: Sequence[Row], shown: Sequence[Instant], peak: int, unit: Unit, style: Style) -> list[str]:
    """Rows of components under columns of instants, with the share of the peak as bars."""
    headings = [["", *words.instant(instant.name).split(" ", 1)][-2:] for instant in shown]
    totals = Row("allocated", ("allocated",), 0, tuple(instant.allocated_bytes for instant in shown))
    cells = [[_cell(value, unit) for value in row.values] for row in rows]
    widths = [max(len(part) for part in (*headings[i], unit.number(totals.values[i]), MARK, *(line[i] for line in cells))) for i in range(len(shown))]
    gap = GAP if style.width - sum(widths) - GAP * len(widths) >= MIN_LABEL else 1
    most = max(min(LABEL, style.width - sum(widths) - gap * len(widths)), MIN_LABEL)
    label = min(max((2 * row.depth + display_width(row.label) for row in rows), default=0), most)
    room = style.width - (label + sum(widths) + gap * (len(widths) + 1) + 5)
    layout = _Layout(label, widths, peak, totals.values[peak] or 1, min(room, MAX_BAR) if room >= MIN_BAR else 0, style, gap)
    lines = [
        layout.heading([MARK if i == peak else "" for i in range(len(shown))], CYAN),
        *(layout.heading([heading[part] for heading in headings], DIM) for part in (0, 1)),
        *(layout.row(row, line) for row, line in zip(rows, cells, strict=True)),
        style.paint("─" * (label + sum(widths) + gap * len(widths)), DIM),
        layout.row(totals, [unit.number(value) for value in totals.values], share=False),
    ]
    return [line for line in lines if line]


class _Layout(NamedTuple):
    """Where the columns of a table stand, how wide a bar for the whole would be, and the space between columns."""

    label: int
    widths: Sequence[int]
    peak: int
    whole: int
    bars: int
    style: Style
    gap: int = GAP

    def heading(self, cells: Sequence[str], *codes: str) -> str:
        if not any(cells):
            return ""
        return self.style.paint(
            (" " * self.label + "".join(" " * self.gap + pad(cell, self.widths[i], right=True) for i, cell in enumerate(cells))).rstrip(), *codes
        )

    def row(self, row: Row, cells: Sequence[str], *, share: bool = True) -> str:
        top, style = row.depth == 0, self.style
        line = style.paint(pad(shorten("  " * row.depth + row.label, self.label), self.label), *((BOLD,) if top else ()))
        for i, cell in enumerate(cells):
            codes = () if i == self.peak and not top else (BOLD,) if i == self.peak else (DIM,)
            line += " " * self.gap + style.paint(pad(cell, self.widths[i], right=True), *codes)
        part = row.values[self.peak] / self.whole
        if share and self.bars and part >= 0.005:
            line += f"  {part:4.0%} {style.paint(bar(part, self.bars), CYAN if top else DIM)}"
        return line.rstrip()


def _cell(value: int, unit: Unit) -> str:
    return unit.number(value) if unit.visible(value) else "·"


def _ranks(estimate: Estimate, unit: Unit, style: Style) -> str:
    names = [instant.name for instant in estimate.most_loaded.instants]
    card = ["on the card"] if words.shows_card(estimate) else []
    head = ["rank", "GPUs", *map(words.instant, names), *card, "peak in"]
    rows = [head]
    for rank in estimate.ranks:
        by_name = {instant.name: instant.allocated_bytes for instant in rank.instants}
        cells = [unit.number(by_name[name]) if name in by_name else "·" for name in names]
        on_card = [unit.number(rank.device_bytes) for _ in card]
        rows.append([words.rank_name(rank) or "all", str(rank.num_ranks), *cells, *on_card, words.instant(rank.peak.name)])
    lines = columns(rows, right=[0 < i < len(head) - 1 for i in range(len(head))], width=style.width)
    return "\n".join([style.paint(f"{unit.name} on each kind of rank", BOLD), "", style.paint(lines[0], DIM), *lines[1:]])


def _closing(estimate: Estimate, unit: Unit, style: Style) -> str:
    return "\n".join(_closing_lines(estimate, unit, style))


def _closing_lines(estimate: Estimate, unit: Unit, style: Style) -> Iterator[str]:
    yield labelled("peak", words.peak_line(estimate, unit), style, BOLD)
    if estimate.serving is not None:
        for i, line in enumerate(words.serving_lines(estimate.serving, unit)):
            yield labelled("" if i else "serving", line, style)
    if estimate.host_bytes or estimate.host_capacity_bytes is not None:
        yield labelled("host", words.host_line(estimate, unit), style)
    for term in estimate.sanity:
        yield labelled("sanity", f"{term.path}: {unit.full(term.bytes)}{f' = {term.formula}' if term.formula else ''}", style)
    for note in filter(None, (*estimate.notes, words.allocator_line(estimate))):
        yield labelled("note", note, style, YELLOW)
    for key in estimate.ignored:
        yield labelled("ignored", key, style)
    if risk := words.risk_line(estimate):
        yield labelled("risk", risk, style, YELLOW)
    if estimate.verdict is not None:
        yield labelled("verdict", words.verdict_line(estimate.verdict), style, colour_of(estimate.verdict), BOLD)
