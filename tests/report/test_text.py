"""The table that people read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from memcalc.engine.result import Reservation, Term
from memcalc.report.style import Style
from memcalc.report.text import last_line, text
from tests.report.estimates import GiB, estimate, instants

GOLDEN = Path(__file__).parent.parent / "data" / "report" / "toy.txt"


def test_the_whole_page_is_as_it_was() -> None:
    assert text(estimate(), Style(100)) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_the_peak_instant_is_marked_above_its_column() -> None:
    lines = text(estimate(), Style(100)).splitlines()
    (mark,) = (i for i, line in enumerate(lines) if "▼ peak" in line)
    end = lines[mark].index("▼ peak") + len("▼ peak")
    assert lines[mark + 1][:end].endswith("backward")


def test_columns_sum_to_their_total() -> None:
    lines = text(estimate(), Style(100)).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("weights"))
    stop = next(i for i, line in enumerate(lines) if line.startswith("allocated"))
    table = [
        [0.0 if cell == "·" else float(cell) for cell in re.findall(r"(?<=  )(\d+\.\d\d|·)", line)[:5]]
        for line in lines[start : stop + 1]
        if line[0] not in " ─"
    ]
    *kinds, total = table
    assert len(kinds) == 6
    assert [sum(column) for column in zip(*kinds, strict=True)] == pytest.approx(total, abs=0.02)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_bars_go_where_there_is_no_room(width: int) -> None:
    lines = text(estimate(), Style(width)).splitlines()
    assert any("█" in line for line in lines) == (width >= 100)
    assert max(map(len, lines)) <= max(width, 78)


def test_colours_are_only_added() -> None:
    coloured = text(estimate(), Style(100, colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == text(estimate(), Style(100))


@pytest.mark.parametrize(
    ("capacity", "line"),
    [
        (80 * GiB, "fits a100-80g: 29.51 GiB of 80.00 GiB, 50.49 GiB (63%) to spare"),
        (30 * GiB, "tight on a100-80g: 29.51 GiB of 30.00 GiB, 0.49 GiB (2%) to spare, less than the margin of 5%"),
        (20 * GiB, "does not fit a100-80g: 29.51 GiB of 20.00 GiB, 9.51 GiB (48%) too much"),
        (None, "28.51 GiB allocated, in backward peak"),
    ],
)
def test_the_last_line_says_it_all(capacity: int | None, line: str) -> None:
    answer = estimate(capacity=capacity)
    assert last_line(answer, Style()) == line
    if capacity:
        assert " ".join(text(answer, Style(300)).splitlines()[-1].split()) == f"verdict {line}"


def test_kinds_of_ranks_have_a_table() -> None:
    out = text(estimate(kinds=2), Style(120))
    assert "on the most loaded of 2 kinds of rank, pp 0 (2 of 4 GPUs are so; --ranks shows all)" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("pp 0", "pp 1"))]
    assert [row[:3] for row in rows] == [["pp", "0", "2"], ["pp", "1", "2"]]


def test_small_models_are_shown_in_mib() -> None:
    answer = estimate(capacity=None)
    small = answer.ranks[0].__class__({"pp": 0}, 1, tuple(i.__class__(i.name, i.rank, i.terms[:3]) for i in instants(scale=100)))
    out = text(answer.__class__(answer.model, answer.asked, (small,), None), Style(100))
    assert "MiB on the GPU" in out
    assert "GiB" not in out


def test_what_the_card_holds_is_found_only_where_it_is_held_against_something() -> None:
    asked: list[int] = []

    def reserve() -> Reservation:
        asked.append(1)
        return Reservation((Term("reserved/held", GiB),), num_releases=2)

    rank = replace(estimate().ranks[0], reserve=reserve)
    assert "reserved" not in text(replace(estimate(capacity=None), ranks=(rank,)), Style())
    assert asked == []
    out = " ".join(text(replace(estimate(), ranks=(rank,)), Style()).split())
    assert "29.51 GiB reserved by the caching allocator" in out
    assert "gives its unused segments back to the card (2 times" in out


def test_a_segment_without_room_is_said() -> None:
    rank = replace(estimate().ranks[0], reserve=lambda: Reservation((), 1, 3 * GiB))
    assert "finds no room for a segment of 3.00 GiB" in text(replace(estimate(), ranks=(rank,)), Style(200))
