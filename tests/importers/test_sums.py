"""Sums in lines of shell."""

from __future__ import annotations

import pytest

from memcalc.importers.sums import one_word_each, worked_out


@pytest.mark.parametrize(
    ("text", "made"),
    [("$((7/2))", "3"), ("$((-7/2))", "-3"), ("$((-7%2))", "-1"), ("$((2*(3+4)))", "14"), ("a$((1+1))b$((2*2))", "a2b4"), ("$((8*$((1+1))))", "$((8*2))")],
)
def test_whole_numbers_as_shells_take_them(text: str, made: str) -> None:
    assert worked_out(text) == made


@pytest.mark.parametrize(
    "text", ["$((1/0))", "$((2**9))", "$((a))", "$((1>2?3:4))", "$((08))", f"$(({'9' * 400}))", "$((9999999999*9999999999))", "$((1.5*2))", "$(())"]
)
def test_others_stay_open(text: str) -> None:
    assert worked_out(text) == text
    assert worked_out(text, otherwise="?") == "?"


def test_names_are_variables_and_expr_is_a_sum() -> None:
    assert one_word_each("$(( A * ${B:-C} + $D ))") == "$((${A}*${B:-C}+$D))"
    assert one_word_each(r"$(expr $A \* 2)") == "$(($A*2))"
