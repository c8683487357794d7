"""A recorded stretch summed up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memcalc.tape.span import maximum, sum_up
from memcalc.tape.tensor import Axis, Event, Record


def record(path: str, size: int) -> Record:
    """A storage of so many bytes."""
    return Record(path, (Axis("n", size),), "uint8")


def test_peak_is_the_most_alive_at_any_time() -> None:
    """10 and 30 together are the most, though 30 is all that stays."""
    a, b = record("a", 10), record("b", 30)
    span = sum_up([(1, a), (1, b), (-1, a)])
    assert (span.net, span.peak) == (30, 40)
    assert span.at_peak == {"a": 10, "b": 30}
    assert span.changes == {"b": 30}


def test_a_stretch_that_only_frees_has_no_peak() -> None:
    """Freed bytes were there before, so nothing is above the start."""
    span = sum_up([(-1, record("a", 7))])
    assert (span.net, span.peak, span.changes) == (-7, 0, {"a": -7})


@given(st.lists(st.tuples(st.sampled_from([1, -1]), st.lists(st.integers(0, 10**6), min_size=3, max_size=3)), max_size=12))
def test_arrays_give_the_same_as_each_element(steps: list[tuple[int, list[int]]]) -> None:
    """One pass over arrays equals a pass for every element."""
    together: list[Event] = [(sign, Record("x", (Axis("n", np.array(sizes)),), "bfloat16")) for sign, sizes in steps]
    whole = sum_up(together)
    for i in range(3):
        alone = sum_up([(sign, Record("x", (Axis("n", sizes[i]),), "bfloat16")) for sign, sizes in steps])
        assert np.broadcast_to(whole.net, 3)[i] == alone.net
        assert np.broadcast_to(whole.peak, 3)[i] == alone.peak


def test_maximum_is_elementwise_on_arrays() -> None:
    """Either side may be an array."""
    assert maximum(np.array([1, 5]), 3).tolist() == [3, 5]
