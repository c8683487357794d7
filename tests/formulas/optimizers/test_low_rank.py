"""Projected gradients: the closed form of the GaLore paper, and the bounds of the rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas.optimizers.low_rank import projected_numel, projector_numel, svd_temp_bytes

SIDES = st.integers(min_value=1, max_value=20_000)


@given(SIDES, SIDES, SIDES)
def test_states_and_projection_are_mr_and_2nr(m: int, n: int, rank: int) -> None:
    """Zhao et al. 2024, table 1: with m ≤ n, moments 2nr and projection mr."""
    m, n = min(m, n), max(m, n)
    rank = min(rank, m)
    assert 2 * projected_numel(m, n, rank=rank) == 2 * n * rank
    assert projector_numel(m, n, rank=rank) == m * rank


@given(SIDES, SIDES)
def test_a_rank_above_the_shorter_side_is_that_side(m: int, n: int) -> None:
    """Slices of the singular vectors end there."""
    assert projected_numel(m, n, rank=10**6) == m * n
    assert projector_numel(m, n, rank=10**6) == min(m, n) ** 2


@given(SIDES, SIDES)
def test_sides_may_be_swapped(m: int, n: int) -> None:
    """The shorter side is projected, whichever it is."""
    assert svd_temp_bytes(m, n, width=2) == svd_temp_bytes(n, m, width=2)
    assert projected_numel(m, n, rank=8) == projected_numel(n, m, rank=8)
