"""ZeRO (Rajbhandari et al. 2020) as DeepSpeed allocates it: partitions with their padding, and what a reduction or a step copies.

Checked against deepspeed 0.19.8; file names below are under deepspeed/runtime/zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from memcalc.units import ceil_div, round_up

NCCL_ALIGNMENT = 2
"""Each rank's part of a flat buffer starts at 4 bytes, two elements of 16 bits (stage_1_and_2.py, ``nccl_start_alignment_factor``)."""
NORM_BYTES = 8
"""Norms of gradients are taken in fp64 (utils.py, ``get_norm_dtype``)."""


def flat_numel(num_params: Any, *, ranks: Any) -> Any:
    """Elements of the flat buffer that all parameters of a group become views of, at stages 1 and 2 (and of the BF16 optimizer).

    Source: stage_1_and_2.py, ``flatten_dense_tensors_aligned``; bf16_optimizer.py, ``_flatten_dense_tensors_aligned``.

    Args:
        num_params: parameters that take a gradient.
        ranks: among which the optimizer is partitioned.

    >>> flat_numel(1000, ranks=3)
    1002
    """
    return round_up(num_params, NCCL_ALIGNMENT * ranks)


def partition_numel(num_params: Any, *, ranks: Any) -> Any:
    """Elements of one rank's partition at stages 1 and 2: master weights, moments and the gradient of the step have so many.

    Source: stage_1_and_2.py, ``partition_size``.

    >>> partition_numel(1000, ranks=3)
    334
    """
    return flat_numel(num_params, ranks=ranks) // ranks


def shard_numel(numel: Any, *, ranks: Any) -> Any:
    """Elements of one parameter on one rank at stage 3; parameters are cut one by one, the last part padded.

    Source: partition_parameters.py, ``_partition_param`` (``partition_size``).

    >>> shard_numel(10, ranks=4)
    3
    """
    return ceil_div(numel, ranks)


def gathered_numel(numel: Any, *, ranks: Any) -> Any:
    """Elements of the buffer that one parameter is gathered into at stage 3, padding included.

    Source: partition_parameters.py, ``_all_gather_sequential`` (``buffer_size``) and ``_all_gather_dtype`` (``flat_tensor``).

    >>> gathered_numel(10, ranks=4)
    12
    """
    return ranks * shard_numel(numel, ranks=ranks)


def pieces(offset: int, numel: int, *, partition: int) -> Iterator[tuple[int, int]]:
    """A parameter cut where partitions of the flat buffer meet: the owner of each piece, and its elements.

    Source: stage_1_and_2.py, ``average_tensor`` (``rank_and_offsets``).

    Args:
        offset: where the parameter begins in the flat buffer.
        numel: its elements.
        partition: elements of a partition.

    >>> list(pieces(8, 10, partition=6))
    [(1, 4), (2, 6)]
    """
    end = offset + numel
    while offset < end:
        owner = offset // partition
        upto = min(end, (owner + 1) * partition)
        yield owner, upto - offset
        offset = upto


def round_robin_offsets(numels: Sequence[int], *, ranks: int) -> list[int]:
    """Where each parameter begins in the flat buffer when they are dealt out to the ranks in turn.

    Source: stage_1_and_2.py, ``_round_robin_reorder``.

    Args:
        numels: elements of each parameter, in order.
        ranks: to whom.

    >>> round_robin_offsets([4, 5, 6], ranks=2)
    [0, 10, 4]
    """
    offsets, end = [0] * len(numels), 0
    for first in range(min(ranks, len(numels))):
        for i in range(first, len(numels), ranks):
            offsets[i] = end
            end += numels[i]
    return offsets


def runs_of_owners(parts: Iterable[tuple[int, int]]) -> list[int]:
    """Elements of each stretch of a bucket whose gradients go to one rank.

    Source: stage_1_and_2.py, ``average_tensor``: bucket ranges with the same consumer are merged.

    >>> runs_of_owners([(1, 4), (2, 6), (2, 5), (1, 3)])
    [4, 11, 3]
    """
    merged: list[int] = []
    last = -1
    for owner, numel in parts:
        if owner == last:
            merged[-1] += numel
        else:
            merged.append(numel)
        last = owner
    return merged


def reduction_bytes(stretches: Sequence[int], *, bucket: int, width: int, reduce_width: int, casts: Sequence[int] = ()) -> int:
    """The most that reducing a bucket copies.

    Stretches are flattened together until they exceed the bucket size, and cast where gradients are reduced in another dtype. One stretch alone
    is a view. What is kept in a wider dtype is cast once more, stretch by stretch, while the reduced copy is there.

    Source: stage_1_and_2.py, ``allreduce_and_scatter``, ``allreduce_bucket`` and ``_add_to_grad_partition_buffer``.

    Args:
        stretches: elements of each stretch of the bucket that goes to one rank.
        bucket: ``reduce_bucket_size``.
        width: bytes of one gradient.
        reduce_width: bytes of one in the dtype of the reduction.
        casts: of each stretch, the bytes of its cast for the rank's own partition.

    >>> reduction_bytes([4, 6, 5], bucket=8, width=2, reduce_width=2), reduction_bytes([15], bucket=8, width=2, reduce_width=4)
    (20, 60)
    """
    most, group, widest = 0, list[int](), 0
    for i, stretch in enumerate(stretches):
        group.append(stretch)
        widest = max(widest, casts[i] if casts else 0)
        if i == len(stretches) - 1 or sum(group) > bucket:
            copied = sum(group) * width if len(group) > 1 else 0
            most = max(most, copied + (sum(group) * reduce_width if reduce_width != width else 0) + widest)
            group, widest = [], 0
    return most


def touched_numel(numels: Iterable[tuple[Any, Any]], *, partition: Any, rank: Any = 0) -> Any:
    """Elements of the parameters that reach into one rank's partition, whole: a rank keeps the whole gradient of each of them.

    Source: stage_1_and_2.py, ``get_partition_info`` (``params_in_partition``) and ``copy_grads_in_partition`` (``grads_in_partition``).

    Args:
        numels: offset in the flat buffer and elements of each parameter.
        partition: elements of a partition.
        rank: whose.

    >>> touched_numel([(0, 8), (8, 10)], partition=6), touched_numel([(0, 8), (8, 10)], partition=6, rank=1)
    (8, 18)
    """
    total: Any = 0
    for offset, numel in numels:
        total = total + numel * is_touched(offset, numel, partition=partition, rank=rank)
    return total


def is_touched(offset: Any, numel: Any, *, partition: Any, rank: Any = 0) -> Any:
    """Whether a parameter reaches into one rank's partition, as 0 or 1.

    Source: stage_1_and_2.py, ``get_partition_info``.

    >>> is_touched(8, 10, partition=6, rank=1), is_touched(8, 10, partition=6)
    (1, 0)
    """
    return (offset < (rank + 1) * partition) * (offset + numel > rank * partition) * 1


def sub_groups(shards: Iterable[Any], *, size: int) -> list[list[int]]:
    """Which parameters step together at stage 3: a group is closed by the parameter with which it reaches the size; by index.

    Source: stage3.py, ``_create_fp16_sub_groups``.

    Args:
        shards: elements of each parameter on this rank, in order.
        size: ``sub_group_size``; 0 makes each parameter a group.

    >>> sub_groups([4, 4, 4, 4], size=6), sub_groups([4, 4], size=100)
    ([[0, 1], [2, 3]], [[0, 1]])
    """
    numels = list(shards)
    if size >= sum(numels):
        return [list(range(len(numels)))] if numels else []
    groups, group, held = list[list[int]](), list[int](), 0
    for i, numel in enumerate(numels):
        group.append(i)
        held += numel
        if held >= size or i == len(numels) - 1:
            groups.append(group)
            group, held = [], 0
    return groups


def scatter_bytes(numels: Sequence[Any], *, ranks: Any, width: int) -> Any:
    """What reduce-scattering a bucket at stage 3 copies: all its gradients in the order of their owners, padded.

    A single gradient that needs no padding is reduced in place.

    Source: deepspeed/runtime/comm/coalesced_collectives.py, ``reduce_scatter_coalesced``.

    Args:
        numels: elements of each gradient of the bucket.
        ranks: among which they are scattered.
        width: bytes of one.

    >>> scatter_bytes([10, 6], ranks=4, width=2), scatter_bytes([8], ranks=4, width=2), scatter_bytes([10], ranks=4, width=2)
    (40, 0, 24)
    """
    padded = sum(gathered_numel(numel, ranks=ranks) for numel in numels) * width
    return padded * (numels[0] % ranks != 0) if len(numels) == 1 else padded
