"""Shards of FSDP cover what they shard, with little waste."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas import fsdp

counts = st.integers(1, 10**6)
ranks_ = st.integers(1, 512)


@given(rows=counts, row=counts, ranks=ranks_)
def test_chunks_cover_a_parameter_with_less_than_a_row_of_waste_each(rows: int, row: int, ranks: int) -> None:
    """FSDP2 pads whole rows, on the ranks that would come short."""
    whole = ranks * fsdp.chunk_numel(rows, row, ranks=ranks)
    assert rows * row <= whole < (rows + ranks) * row
    assert fsdp.gathered_numel(rows, row, ranks=ranks) == whole


@given(numels=st.lists(counts, min_size=1, max_size=20), width=st.sampled_from([2, 4]), ranks=ranks_)
def test_a_flat_parameter_wastes_less_than_an_alignment_for_each_parameter_and_one_element_for_each_rank(numels: list[int], width: int, ranks: int) -> None:
    """FSDP1 pads between parameters and at the end."""
    flat = fsdp.flat_numel(numels, width=width, ranks=ranks)
    assert flat % ranks == 0
    assert sum(numels) <= flat < sum(numels) + len(numels) * (16 // width) + ranks


@given(numels=st.lists(counts, min_size=1, max_size=20), width=st.sampled_from([2, 4]))
def test_parameters_of_a_flat_one_are_aligned_and_do_not_overlap(numels: list[int], width: int) -> None:
    """Each starts at a multiple of 16 bytes, behind the one before."""
    starts = list(fsdp.flat_offsets(numels, width=width))
    assert all(start * width % 16 == 0 for start in starts)
    assert all(a + n <= b for a, n, b in zip(starts, numels, starts[1:], strict=False))


def test_one_rank_needs_no_buffer() -> None:
    """Over one rank parameters are copied without a gather."""
    assert fsdp.gather_buffer_bytes(100, width=2, ranks=1) == 0


def test_ranks_may_be_an_array() -> None:
    """One call answers for several degrees."""
    degrees = np.array([1, 2, 3, 64])
    assert fsdp.gathered_numel(10, 8, ranks=degrees).tolist() == [fsdp.gathered_numel(10, 8, ranks=int(n)) for n in degrees]
    assert fsdp.flat_numel([3, 8, 5], width=2, ranks=degrees).tolist() == [fsdp.flat_numel([3, 8, 5], width=2, ranks=int(n)) for n in degrees]
    assert fsdp.gather_buffer_bytes(96, width=2, ranks=degrees).tolist() == [0, 192, 192, 192]
