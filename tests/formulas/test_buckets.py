"""Buckets of gradients."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas.buckets import ddp_bucket_bytes, largest_group


@given(st.integers(1, 10**12), st.sampled_from([2, 4]), st.integers(2, 10**4))
def test_buckets_of_replicas_hold_each_gradient_once(num_params: int, width: int, replicas: int) -> None:
    assert ddp_bucket_bytes(num_params, width=width, replicas=replicas) == num_params * width


@given(st.lists(st.integers(1, 1000), min_size=1), st.integers(1, 2000))
def test_a_group_exceeds_its_limit_by_less_than_one_gradient(numels: list[int], limit: int) -> None:
    assert max(numels) <= largest_group(numels, limit=limit) <= limit + max(numels)


def test_a_new_group_begins_after_the_gradient_that_overfills_one() -> None:
    assert largest_group([6, 6, 1, 1], limit=7) == 12
