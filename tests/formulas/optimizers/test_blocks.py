"""States in blocks: laws, and bytes of one parameter as they are published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas.optimizers.blocks import bnb_paged_bytes, bnb_state_bytes, torchao_state_bytes

NUMELS = st.integers(min_value=1, max_value=2**30)


@pytest.mark.parametrize(("states", "bits", "each"), [(2, 8, 2.03125), (1, 8, 1.015625), (3, 8, 3.046875), (2, 32, 8), (3, 32, 12), (1, 32, 4)])
def test_bytes_of_a_parameter_in_a_large_tensor(states: int, bits: int, each: float) -> None:
    """8-bit states cost a byte and a 64th; AdEMAMix has three."""
    assert bnb_state_bytes(2**24, states=states, bits=bits) / 2**24 == each


@given(NUMELS)
def test_what_is_paged_is_part_of_the_states(numel: int) -> None:
    """And of small tensors nothing is."""
    for bits in (8, 32):
        paged = bnb_paged_bytes(numel, states=2, bits=bits)
        assert 0 <= paged <= bnb_state_bytes(numel, states=2, bits=bits)
        assert (paged > 0) == (numel >= 100_000)


@given(st.lists(NUMELS, min_size=1, max_size=8))
def test_arrays_answer_as_each_number_does(numels: list[int]) -> None:
    """One code path for one question and for many."""
    array = np.array(numels)
    assert bnb_state_bytes(array, states=2, bits=8).tolist() == [bnb_state_bytes(n, states=2, bits=8) for n in numels]
    assert torchao_state_bytes(array, bits=4, width=2).tolist() == [torchao_state_bytes(n, bits=4, width=2) for n in numels]


def test_a_tensor_that_blocks_do_not_divide_keeps_full_moments() -> None:
    """torchao quantises whole blocks only; bitsandbytes has a last one that is not full."""
    assert torchao_state_bytes(2**20 + 1, bits=8, width=4) == 8 * (2**20 + 1)
    assert bnb_state_bytes(2**20 + 1, states=1, bits=8) == 2**20 + 1 + 4 * 4097
