"""An estimate as markdown and as csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from memcalc.engine.result import Estimate, RankEstimate
from memcalc.report import words
from memcalc.report.explain import derivation
from memcalc.report.rows import rows_of


def markdown(estimate: Estimate, *, explain: bool = False, ranks: bool = False) -> str:
    """A table of components and instants with the lines around it, for a pull request or a page."""
    unit = words.unit_of(estimate)
    loaded = estimate.most_loaded
    peak = loaded.instants.index(loaded.peak)
    head = [f"{unit.name} {words.rank_line(estimate)}", *(f"{words.instant(i.name)}{' (peak)' if n == peak else ''}" for n, i in enumerate(loaded.instants))]
    shown = rows_of([i.terms for i in loaded.instants])
    rows = [[f"{'&emsp;' * row.depth}{row.label}", *(unit.number(v) if unit.visible(v) else "" for v in row.values)] for row in shown]
    rows.append(["**allocated**", *(f"**{unit.number(i.allocated_bytes)}**" for i in loaded.instants)])
    asked = "; ".join([words.job_line(estimate.asked), words.cards_line(estimate), *words.other_keys(estimate.asked)])
    parts = [f"**{words.model_line(estimate)}**: {asked}", grid(rows, head)]
    if ranks:
        parts.append(_ranks(estimate))
    if explain:
        terms = [[f"`{t.path}`", derivation(t).replace("*", "\\*"), t.source] for t in loaded.peak.terms]
        parts.append(grid(terms, [f"in {words.instant(loaded.peak.name)}", "bytes", "source"]))
    listed = [f"peak: {words.peak_line(estimate, unit)}"]
    listed += [f"sanity: {t.path}: {unit.full(t.bytes)}" for t in estimate.sanity]
    listed += [
        *(f"assumed: {line}" for line in estimate.assumptions),
        *(f"note: {line}" for line in filter(None, (*estimate.notes, words.allocator_line(estimate)))),
    ]
    listed += [f"ignored: {line}" for line in estimate.ignored]
    if risk := words.risk_line(estimate):
        listed.append(f"risk: {risk}")
    if estimate.verdict is not None:
        listed.append(f"**{words.verdict_line(estimate.verdict)}**")
    parts.append("\n".join(f"- {line}" for line in listed))
    return "\n\n".join(parts)


def comma_separated(estimate: Estimate, *, ranks: bool = False) -> str:
    """A line for every term of every instant: rank, instant, path, bytes, formula, source."""
    head = ["rank", "instant", "path", "bytes", "formula", "source"]
    shown = estimate.ranks if ranks else estimate.ranks[:1]
    return comma_rows(head, [line for rank in shown for line in _term_lines(rank)])


def comma_rows(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def grid(rows: Sequence[Sequence[Any]], head: Sequence[str], *, numbers_from: int = 1) -> str:
    """A table in GitHub's markdown; cells are taken as they are."""
    from tabulate import tabulate

    align = ["left" if i < numbers_from else "right" for i in range(len(head))]
    return str(tabulate(rows, list(head), tablefmt="github", disable_numparse=True, colalign=align if rows else None))


def _term_lines(rank: RankEstimate) -> list[list[Any]]:
    name = words.rank_name(rank)
    lines = [[name, i.name, t.path, t.bytes, t.formula, t.source] for i in rank.instants for t in i.terms]
    lines += [[name, "reserved", t.path, t.bytes, t.formula, t.source] for t in rank.reserved]
    return lines + [[name, "device", t.path, t.bytes, t.formula, t.source] for t in rank.device]


def _ranks(estimate: Estimate) -> str:
    unit = words.unit_of(estimate)
    names = [i.name for i in estimate.most_loaded.instants]
    rows = []
    for rank in estimate.ranks:
        by_name = {i.name: unit.number(i.allocated_bytes) for i in rank.instants}
        on_card = [unit.number(rank.device_bytes)] if words.shows_card(estimate) else []
        rows.append([words.rank_name(rank), str(rank.num_ranks), *(by_name.get(name, "") for name in names), *on_card])
    return grid(rows, ["rank", "GPUs", *map(words.instant, names), *(["on the card"] if words.shows_card(estimate) else [])])
