"""Laws of partitions: shards cover the whole, with less than a unit of waste each."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas import zero

counts = st.integers(1, 10**9)
ranks = st.integers(1, 4096)
sizes = st.lists(st.integers(1, 10**6), min_size=1, max_size=30)


@given(counts, ranks)
def test_partitions_cover_the_flat_buffer_with_less_than_a_unit_of_waste_each(num_params: int, ranks: int) -> None:
    whole = ranks * zero.partition_numel(num_params, ranks=ranks)
    assert num_params <= whole == zero.flat_numel(num_params, ranks=ranks) < num_params + zero.NCCL_ALIGNMENT * ranks


@given(counts, ranks)
def test_shards_cover_a_parameter_with_less_than_an_element_of_waste_each(numel: int, ranks: int) -> None:
    assert numel <= zero.gathered_numel(numel, ranks=ranks) == ranks * zero.shard_numel(numel, ranks=ranks) < numel + ranks


@given(sizes, st.integers(1, 64))
def test_pieces_of_all_parameters_fill_the_partitions(numels: list[int], ranks: int) -> None:
    partition, held, offset = zero.partition_numel(sum(numels), ranks=ranks), [0] * ranks, 0
    for numel in numels:
        for owner, piece in zero.pieces(offset, numel, partition=partition):
            held[owner] += piece
        offset += numel
    assert sum(held) == sum(numels)
    assert max(held) <= partition


@given(sizes, st.integers(1, 64))
def test_a_rank_touches_what_it_owns_a_piece_of(numels: list[int], ranks: int) -> None:
    partition = zero.partition_numel(sum(numels), ranks=ranks)
    offset = 0
    for numel in numels:
        owners = {owner for owner, _ in zero.pieces(offset, numel, partition=partition)}
        assert owners == {r for r in range(ranks) if zero.is_touched(offset, numel, partition=partition, rank=r)}
        offset += numel


@given(sizes, st.integers(1, 8))
def test_dealing_out_changes_the_order_alone(numels: list[int], ranks: int) -> None:
    offsets = zero.round_robin_offsets(numels, ranks=ranks)
    ends = sorted((offset, offset + numel) for offset, numel in zip(offsets, numels, strict=False))
    assert ends[0][0] == 0
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(ends))
    assert ends[-1][1] == sum(numels)


@given(sizes, st.integers(0, 2 * 10**6))
def test_sub_groups_are_all_parameters_in_order_and_close_when_full(numels: list[int], size: int) -> None:
    groups = zero.sub_groups(numels, size=size)
    assert [i for group in groups for i in group] == list(range(len(numels)))
    for group in groups[:-1]:
        assert sum(numels[i] for i in group) >= size
    for group in groups:
        assert sum(numels[i] for i in group[:-1]) < max(size, 1)


@given(sizes, st.integers(1, 10**6))
def test_a_reduction_copies_at_most_its_bucket_and_the_stretch_that_overfills_it(stretches: list[int], bucket: int) -> None:
    copied = zero.reduction_bytes(stretches, bucket=bucket, width=2, reduce_width=2)
    assert copied <= 2 * (bucket + max(stretches))


def test_one_stretch_is_reduced_in_place() -> None:
    assert zero.reduction_bytes([10], bucket=4, width=2, reduce_width=2) == 0


def test_a_stretch_that_exceeds_the_bucket_closes_its_group() -> None:
    assert zero.reduction_bytes([3, 9, 5], bucket=8, width=2, reduce_width=2) == 24


def test_the_cast_of_a_kept_piece_stands_beside_the_copies_of_its_group_alone() -> None:
    of = {"bucket": 8, "width": 2, "reduce_width": 2}
    assert zero.reduction_bytes([3, 9, 5], casts=[0, 0, 20], **of) == 24
    assert zero.reduction_bytes([3, 9, 5], casts=[12, 0, 0], **of) == 36
