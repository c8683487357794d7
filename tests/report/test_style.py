"""Numbers, bars and columns."""

from __future__ import annotations

import pytest

from memcalc.report.style import Style, bar, columns, pad, shorten, unit_for, words_below, wrap


def test_one_unit_for_a_report() -> None:
    assert unit_for(2**30).name == "GiB"
    assert unit_for(2**30 - 1).name == "MiB"


def test_signs() -> None:
    unit = unit_for(2**40)
    assert [unit.signed(value * 2**30) for value in (1.5, -1.5, 0, 0.001)] == ["+1.50", "−1.50", "0.00", "0.00"]
    assert unit.number(-1) == "0.00"


@pytest.mark.parametrize(("share", "drawn"), [(0, ""), (1, "████"), (0.5, "██"), (2, "████"), (-1, ""), (1 / 32, "▏")])
def test_bars(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


def test_text_is_fitted() -> None:
    assert (pad("ab", 4), pad("ab", 4, right=True), shorten("abcdef", 4)) == ("ab  ", "  ab", "abc…")
    assert wrap("aa bb cc dd", 7, indent="  ") == "aa bb\n  cc dd"
    assert columns([["a", "1"], ["bbb", "22"]], right=[False, True]) == ["a     1", "bbb  22"]


def test_no_colours_without_colour() -> None:
    assert Style().paint("x", "1") == "x"
    assert Style(colour=True).paint("x", "1") == "\x1b[1mx\x1b[0m"


def test_sentences_stand_beside_their_row_or_below_it() -> None:
    rows = [["key", "needs", "what"], ["a", "1", "some words to say"], ["b", "22", ""]]
    right = [False, True, False]
    assert words_below(rows, right=right, width=40, least=10)[1] == "a        1  some words to say"
    assert words_below(rows, right=right, width=22, least=10) == columns(rows, right=right, width=22)
    assert words_below(rows, right=right, width=16, least=10) == ["key  needs", "a        1\n    some words\n    to say", "b       22"]
