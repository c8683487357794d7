"""Markdown and csv."""

from __future__ import annotations

import csv
import io

from memcalc.report.tables import comma_separated, markdown
from tests.report.estimates import estimate


def test_markdown_marks_the_peak_and_ends_with_the_verdict() -> None:
    out = markdown(estimate(), explain=True, ranks=True)
    assert "backward peak (peak)" in out
    assert out.splitlines()[-1] == "- **fits a100-80g: 29.51 GiB of 80.00 GiB, 50.49 GiB (63%) to spare**"
    assert "| **allocated**" in out


def test_markdown_tables_have_cells_of_one_number() -> None:
    lines = markdown(estimate(), ranks=True).splitlines()
    runs: list[list[int]] = [[]]
    for line in lines:
        if line.startswith("|"):
            runs[-1].append(line.count("|"))
        elif runs[-1]:
            runs.append([])
    assert all(len(set(run)) == 1 for run in runs if run)


def test_csv_holds_every_term() -> None:
    answer = estimate(kinds=2)
    rows = list(csv.DictReader(io.StringIO(comma_separated(answer, ranks=True))))
    assert {row["rank"] for row in rows} == {"pp 0", "pp 1"}
    inside = [row for row in rows if row["instant"] not in ("reserved", "device")]
    assert sum(int(row["bytes"]) for row in inside) == sum(i.allocated_bytes for rank in answer.ranks for i in rank.instants)
