"""Walking through a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.walk import Walk
from memcalc.tape.span import Span

SPANS = st.builds(
    lambda net, extra: Span(net=net, peak=max(net, 0) + extra, changes={"a": net}, at_peak={"a": max(net, 0) + extra}),
    st.integers(-1000, 1000),
    st.integers(0, 5000),
)


@given(st.integers(0, 50), SPANS, SPANS, SPANS)
def test_repeat_equals_the_loop(times: int, first: Span, middle: Span, last: Span) -> None:
    """Running the ends and multiplying the middle gives the totals, paths and peak of running every turn."""

    def walk_with(run: object) -> Walk:
        walk = Walk()
        walk.alloc("a", 10**6)

        def body(i: int) -> None:
            walk.apply(first if i == 0 else last if i == times - 1 else middle)

        with walk.window("w"):
            if run is None:
                for i in range(times):
                    body(i)
            else:
                walk.repeat(times, body)
        return walk

    quick, slow = walk_with("repeat"), walk_with(None)
    assert quick.total == slow.total
    assert quick.by_path == slow.by_path
    assert quick.instants["w"].total == slow.instants["w"].total


def test_a_window_reads_the_peak_and_who_was_there() -> None:
    """What is touched for a moment counts while it is there."""
    walk = Walk()
    walk.alloc("weights", 100)
    with walk.window("step"):
        walk.touch("temporary", 40)
        walk.free("weights", 60)
    assert walk.instants["step"].total == 140
    assert walk.instants["step"].by_path == {"weights": 100, "temporary": 40}
    assert walk.total == 40
