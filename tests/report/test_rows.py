"""Terms rolled up into rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.result import Term
from memcalc.report.rows import rows_of, shown_path, totals

PARTS = st.sampled_from(["weights", "activations", "layers", "lm_head", "mlp", "gradient of x", "out"])
TERMS = st.lists(st.builds(Term, st.lists(PARTS, min_size=1, max_size=5).map("/".join), st.integers(0, 2**40)), max_size=20)


@given(st.lists(TERMS, min_size=1, max_size=4))
def test_top_rows_sum_to_every_column(columns: list[list[Term]]) -> None:
    rows = rows_of(columns)
    for i, terms in enumerate(columns):
        assert sum(row.values[i] for row in rows if row.depth == 0) == sum(term.bytes for term in terms)


@given(st.lists(TERMS, min_size=1, max_size=4))
def test_totals_are_the_same_sums(columns: list[list[Term]]) -> None:
    found = totals(columns)
    for i, terms in enumerate(columns):
        assert sum(values[i] for values in found.values()) == sum(term.bytes for term in terms)


def test_what_is_small_is_put_together() -> None:
    terms = [Term("weights/a", 1000), Term("weights/b", 1000), Term("weights/c", 3), Term("weights/d", 9), Term("batch", 1), Term("buffers", 1)]
    rows = rows_of([terms])
    sizes = [("weights", 0, 2012), ("a", 1, 1000), ("b", 1, 1000), ("c, d", 1, 12), ("batch, buffers", 0, 2)]
    assert [(row.label, row.depth, *row.values) for row in rows] == sizes


def test_a_level_that_says_no_more_is_left_out() -> None:
    rows = rows_of([[Term("weights/layers/mlp/up/weight", 10), Term("optimizer/moments", 10), Term("optimizer/counters", 10)]])
    assert [(row.label, row.depth) for row in rows] == [("weights / layers / mlp / up / weight", 0), ("optimizer", 0), ("counters", 1), ("moments", 1)]


def test_the_end_of_the_model_is_a_kind_of_its_own() -> None:
    assert shown_path("activations/lm_head/x")[0] == "logits & loss"
    assert shown_path("activations/gradient of nll")[0] == "logits & loss"
    assert shown_path("gradients/lm_head/weight")[0] == "gradients"
