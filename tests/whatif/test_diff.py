"""Snapshots, and what changed since."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.whatif.diff import Change, State, changes, read_snapshot, snapshot, state_of
from tests.report.estimates import estimate


def test_a_snapshot_is_read_as_it_was(tmp_path: Path) -> None:
    states = {"a.yaml": state_of(estimate()), "b.yaml": state_of(None, "cannot be")}
    path = tmp_path / "base.json"
    path.write_text(snapshot(states))
    assert read_snapshot(str(path)) == states
    assert changes(read_snapshot(str(path)), states) == []


def test_changed_new_and_refused_runs_are_changes() -> None:
    one, less = state_of(estimate()), state_of(estimate())._replace(allocated_bytes=1)
    found = changes({"a": one, "b": one, "gone": one}, {"a": one, "b": less, "new": one})
    assert [change.name for change in found] == ["b", "new"]
    assert found[1].before is None


def test_terms_that_differ_come_largest_first() -> None:
    change = Change("a", State(terms={"x": 5, "y": 1, "same": 3}), State(terms={"x": 4, "z": 9, "same": 3}))
    assert list(change.terms()) == [("z", 0, 9), ("x", 5, 4), ("y", 1, 0)]


@pytest.mark.parametrize(
    "text", ["[]", "{}", "x", json.dumps({"schema_version": 2, "runs": {}}), json.dumps({"schema_version": 1, "runs": {"a": {"b": 1}}}), "[" * 9999]
)
def test_another_file_is_no_snapshot(tmp_path: Path, text: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(InputError, match="memcalc diff"):
        read_snapshot(str(path))
