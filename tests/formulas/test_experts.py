"""Rows of tokens that experts get."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas.experts import busiest_share, other_share, received_share, share


def test_seventy_per_cent_on_one_of_four_is_2_8_times_the_even_share() -> None:
    """Eight experts on four cards."""
    assert busiest_share(0.7, ep=4) == 2.8


@given(st.integers(2, 64), st.floats(1, 64))
def test_all_shares_sum_to_the_ranks(ep: int, busiest: float) -> None:
    """The busy one's and the others'."""
    hot = share(min(busiest, ep))
    cold = other_share(hot, ep=ep)
    assert hot[0] * cold[1] + (ep - 1) * cold[0] * hot[1] == ep * hot[1] * cold[1]


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_capacity_bounds_what_is_received(wanted: float, capacity: float) -> None:
    """Padded or not; with padding it is what is received."""
    limit = share(capacity)
    got = received_share(share(wanted), limit, padded=False)
    assert got[0] / got[1] <= capacity + 1e-6
    assert received_share(share(wanted), limit, padded=True) == limit
