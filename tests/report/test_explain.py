"""Derivations."""

from __future__ import annotations

import pytest

from memcalc.engine.result import Term
from memcalc.report.explain import derivation, explained, substituted
from memcalc.report.style import Style
from tests.report.estimates import estimate


@pytest.mark.parametrize(
    ("formula", "inputs", "said"),
    [
        ("a * b", {"a": 2, "b": 3}, "2 * 3"),
        ("heads * seq_len + 1", {"heads": 2, "seq_len + 1": 9, "seq_len": 8}, "2 * 9"),
        ("hidden_size * hidden_size/2", {"hidden_size": 8, "hidden_size/2": 4}, "8 * 4"),
        ("a * ab * a", {"a": 1, "ab": 2}, "1 * 2 * 1"),
        ("2 * num", {"num": 5}, "2 * 5"),
        ("words", {}, "words"),
    ],
)
def test_numbers_stand_for_whole_names_only(formula: str, inputs: dict[str, int], said: str) -> None:
    assert substituted(formula, inputs) == said


def test_a_formula_without_numbers_stands_alone() -> None:
    assert derivation(Term("x", 1234, "as measured")) == "as measured = 1,234 bytes"


def test_a_term_that_stays_is_said_once() -> None:
    out = explained(estimate(), Style())
    assert out.count("optimizer/moments") == 1
    assert "in start, forward peak, forward end, backward peak, optimizer step" in out
    assert "2 * num_params * width = 2 * 3221225472 * 2 = 12,884,901,888 bytes" in out
    assert "torch/optim/adamw.py" in out


def test_what_is_outside_the_allocator_is_there_too() -> None:
    out = explained(estimate(), Style())
    assert "on the card beside the allocator" in out
    assert "reserved by the allocator" in out
