"""Loops over the sequence: which steps are run, and how many the one in the middle stands for."""

from __future__ import annotations

import numpy as np
import pytest

from memcalc.code.context import Context, Settings
from memcalc.code.transformers.loop import RUN, is_cut, steps
from memcalc.errors import InputError
from memcalc.tape.tape import Tape


def context(seq: object) -> Context:
    """Of one sequence."""
    return Context(Tape(), Settings(code="transformers", attention="sdpa", batch=1, seq=seq, dtype="bfloat16"))


@pytest.mark.parametrize("num", [1, 2, 3, 4, 5, 6, 100])
def test_run_and_counted_steps_are_all_steps(num: int) -> None:
    """Of one token each; below five all are run."""
    found = list(steps(context(num)))
    assert len(found) == min(num, RUN)
    assert sum(1 + (more or 0) for more in found) == num


def test_a_last_step_may_be_shorter() -> None:
    assert sum(1 + (more or 0) for more in steps(context(641), 64)) == 11
    assert list(steps(context(64), 64)) == [None]


def test_an_array_of_lengths_counts_for_each() -> None:
    """As long as all have five steps or more, or the same number."""
    found = list(steps(context(np.array([400, 1000])), 64))
    assert found[RUN // 2].tolist() == [2, 11]
    with pytest.raises(InputError, match="must not cross 65"):
        list(steps(context(np.array([10, 1000])), 64))


def test_a_chunk_is_cut_unless_all_are_full() -> None:
    assert not is_cut(context(128), 64)
    assert is_cut(context(130), 64)
    assert is_cut(context(np.array([128, 130])), 64)
