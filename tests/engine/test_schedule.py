"""Pipeline schedules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.schedule import max_in_flight, turns

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 12))


def in_flight(schedule: str, *, stages: int, chunks: int = 1, micro_batches: int) -> list[int]:
    """For each stage."""
    return [max_in_flight(schedule, stages=stages, stage=i, chunks=chunks, micro_batches=micro_batches) for i in range(stages)]  # type: ignore[arg-type]


def test_one_forward_one_backward_holds_fewer_on_later_stages() -> None:
    """min(m, p − i) micro-batches are in flight on stage i (Narayanan et al. 2021, section 2.2.1)."""
    assert in_flight("1f1b", stages=8, micro_batches=64) == [8, 7, 6, 5, 4, 3, 2, 1]
    assert in_flight("1f1b", stages=8, micro_batches=3) == [3, 3, 3, 3, 3, 3, 2, 1]


def test_gpipe_holds_every_micro_batch() -> None:
    """All forward passes come before all backward passes."""
    assert in_flight("gpipe", stages=4, micro_batches=10) == [10] * 4


def test_zero_bubble_holds_on_every_stage_what_the_first_does() -> None:
    """ZB-H1 fills each stage up to p micro-batches."""
    assert in_flight("zero_bubble", stages=4, micro_batches=10) == [4] * 4


def test_interleaving_holds_more() -> None:
    """The first stage holds 1 + (p − 1) / (p·v) times as much (Korthikanti et al. 2022, section 4.2.3), in passes of one chunk p·v times that."""
    for stages, chunks in ((8, 3), (35, 3), (4, 2)):
        assert in_flight("interleaved", stages=stages, chunks=chunks, micro_batches=4 * stages)[0] == stages * chunks + stages - 1


@given(SHAPES, st.sampled_from(["1f1b", "gpipe", "interleaved", "zero_bubble"]), st.data())
def test_no_stage_holds_more_than_there_is(shape: tuple[int, int, int], schedule: str, data: st.DataObject) -> None:
    """Each chunk holds between none and all micro-batches; a backward pass has one to run back."""
    stages, chunks, micro_batches = shape
    stage = data.draw(st.integers(0, stages - 1))
    found = turns(schedule, stages=stages, stage=stage, chunks=chunks, micro_batches=micro_batches)  # type: ignore[arg-type]
    for turn in found:
        assert all(0 <= n <= micro_batches for n in turn.in_flight)
        assert turn.forward or turn.in_flight[turn.chunk] > 0
    assert sum(turn.first for turn in found) >= chunks


def test_zero_bubble_keeps_what_awaits_gradients_of_weights() -> None:
    """On stage i as many as it is behind the first, and the one that runs back, beside those that have not run back: p in all (Qi et al. 2024, table 1)."""
    for stage in range(4):
        found = turns("zero_bubble", stages=4, stage=stage, chunks=1, micro_batches=12)
        assert max(turn.waiting[0] for turn in found) == stage + 1
        assert max(turn.in_flight[0] for turn in found) == 4


def passes(schedule: str, *, stages: int, stage: int, micro_batches: int) -> list[tuple[int, ...]]:
    """Forward passes before the first backward pass of a stage, by chunk."""
    found = turns(schedule, stages=stages, stage=stage, chunks=2, micro_batches=micro_batches)  # type: ignore[arg-type]
    return [turn.in_flight for turn in found if not turn.forward][:1]


def test_zbv_holds_on_every_stage_as_much_as_any_other() -> None:
    """2 p chunks of half a stage, as 1F1B's first stage (Qi et al. 2024, section 6)."""
    assert in_flight("zbv", stages=4, chunks=2, micro_batches=16) == [8] * 4
    assert passes("zbv", stages=4, stage=0, micro_batches=16) == [(7, 1)]
    assert passes("zbv", stages=4, stage=3, micro_batches=16) == [(4, 4)]
