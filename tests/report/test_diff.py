"""The comment on a change."""

from __future__ import annotations

from memcalc.report.diff import CUT, MARKER, MAX_CHARACTERS, markdown
from memcalc.whatif.diff import Change, State

GiB = 2**30
OLD = State("toy", "backward_peak", 4 * GiB, 5 * GiB, 8 * GiB, True, {"weights/layers": 3 * GiB, "activations/a|b": GiB})
NEW = State("toy", "forward_peak", 9 * GiB, 10 * GiB, 8 * GiB, False, {"weights/layers": 3 * GiB, "activations/a|b": 6 * GiB})


def test_nothing_is_said_where_nothing_changed() -> None:
    assert markdown([]) == ""


def test_the_comment_can_be_found_and_says_old_new_and_difference() -> None:
    text = markdown([Change("runs/a.yaml", OLD, NEW)])
    assert text.startswith(MARKER)
    assert "4.00 GiB" in text
    assert "9.00 GiB" in text
    assert "+5.00" in text
    assert "fits → **does not fit**" in text
    assert "`activations/a\\|b`" in text
    assert "weights/layers" not in text


def test_new_and_refused_runs_have_a_row() -> None:
    text = markdown([Change("new.yaml", None, NEW), Change("bad.yaml", OLD, State(refused="unknown <key>"))])
    assert "| `new.yaml`" in text
    assert "cannot be: unknown &lt;key>" in text


def test_it_stays_below_what_a_comment_may_hold() -> None:
    many = [Change(f"runs/{'x' * 50}{i}.yaml", OLD, NEW) for i in range(3000)]
    for count in (100, 300, 3000):
        text = markdown(many[:count])
        assert len(text) < MAX_CHARACTERS
        assert text.endswith((CUT, "</details>"))


def test_terms_too_small_to_see_are_one_line() -> None:
    before = State("m", "start", 5 * GiB, terms={"weights": 4 * GiB, "a": 10, "b": 20})
    now = State("m", "start", 6 * GiB, terms={"weights": 5 * GiB, "a": 11, "b": 21})
    text = markdown([Change("r.yaml", before, now)])
    assert "`weights`" in text
    assert "2 more" in text
    assert "`a`" not in text
