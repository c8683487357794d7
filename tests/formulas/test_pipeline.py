"""Pipelines' closed forms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.schedule import max_in_flight
from memcalc.formulas.pipeline import bubble_fraction, interleaving_factor, micro_batches_in_flight


@given(st.integers(2, 32), st.integers(2, 6))
def test_the_factor_is_what_the_schedule_does(pp: int, vpp: int) -> None:
    """Turn by turn the first stage holds so many passes of a chunk."""
    held = max_in_flight("interleaved", stages=pp, stage=0, chunks=vpp, micro_batches=4 * pp)
    assert held == round(pp * vpp * interleaving_factor(pp=pp, vpp=vpp))


@given(st.integers(1, 32), st.integers(1, 64), st.data())
def test_micro_batches_are_what_the_schedule_does(pp: int, micro_batches: int, data: st.DataObject) -> None:
    """Under one forward, one backward."""
    stage = data.draw(st.integers(0, pp - 1))
    held = max_in_flight("1f1b", stages=pp, stage=stage, chunks=1, micro_batches=micro_batches)
    assert held == micro_batches_in_flight(pp=pp, stage=stage, micro_batches=micro_batches)


def test_chunks_shrink_the_bubble() -> None:
    """By their number."""
    assert bubble_fraction(pp=8, micro_batches=16, vpp=4) * 4 == bubble_fraction(pp=8, micro_batches=16)
