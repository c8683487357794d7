"""The search for the largest value that fits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.resolve import resolve
from memcalc.specs.read import read_run
from memcalc.whatif.fit import granule, highest_between, largest


@given(st.integers(0, 10**7), st.integers(1, 64))
def test_the_answer_fits_and_one_step_more_does_not(limit: int, step: int) -> None:
    assert largest(lambda values: values <= limit, cap=1 << 27, step=step) == limit // step * step


@given(st.integers(100, 100_000), st.integers(1, 60))
def test_a_dip_above_the_first_failure_is_found_at_its_mark(limit: int, width: int) -> None:
    """Memory falls again where a window begins: values from there on fit for a while."""
    window = 2 * limit

    def fits(values: object) -> object:
        return (values <= limit) | ((values >= window) & (values < window + width))  # type: ignore[operator]

    assert largest(fits, cap=1 << 27, marks=[window]) == window + width - 1  # type: ignore[arg-type]


def test_no_more_than_the_cap_is_answered() -> None:
    assert largest(lambda values: np.full(len(values), fill_value=True), cap=1000, step=3) == 999


@given(st.integers(0, 1000), st.none() | st.integers(-5, 1200))
def test_bisection_ends_at_the_last_that_fits(limit: int, near: int | None) -> None:
    assert highest_between(lambda n: n <= limit, 0, 1001, near=near) == limit


def test_a_good_guess_saves_looks() -> None:
    looks: list[int] = []
    assert highest_between(lambda n: not looks.append(n) and n <= 40_123, 0, 60_000, near=40_120) == 40_123  # type: ignore[func-returns-value]
    assert len(set(looks)) < 8


def test_lengths_are_cut_evenly() -> None:
    job = resolve(read_run("llama-3.1-8b", code="megatron", tp=4, sp=True, cp=2, gpus=8))
    assert granule(job) == 16
    assert granule(resolve(read_run("llama-3.1-8b", code="torchtitan", cp=2, gpus=8))) == 4
    assert granule(resolve(read_run("llama-3.1-8b", cp=2, gpus=8))) == 2
