"""Host memory behind pinned tensors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas.host import pinned_bytes


@given(st.integers(1, 2**45))
def test_a_pinned_block_is_the_next_power_of_two(num_bytes: int) -> None:
    block = pinned_bytes(num_bytes)
    assert block & (block - 1) == 0
    assert num_bytes <= block < 2 * num_bytes
