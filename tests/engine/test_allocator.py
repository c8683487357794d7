"""The caching allocator's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.allocator import Block, CachingAllocator, OutOfMemory
from memcalc.units import MiB


def test_a_small_request_takes_a_two_mebibyte_segment() -> None:
    """One byte is rounded to 512 and served from a fresh small segment."""
    a = CachingAllocator()
    assert a.malloc(1).size == 512
    assert a.reserved_bytes == 2 * MiB


def test_medium_requests_share_a_twenty_mebibyte_segment() -> None:
    """Six requests of 3 MiB fit one segment of 20 MiB; the seventh needs another."""
    a = CachingAllocator()
    for _ in range(6):
        a.malloc(3 * MiB)
    assert a.reserved_bytes == 20 * MiB
    a.malloc(3 * MiB)
    assert a.reserved_bytes == 40 * MiB


def test_a_large_request_gets_a_segment_of_its_own_size() -> None:
    """From 10 MiB on, rounded to 2 MiB."""
    a = CachingAllocator()
    a.malloc(11 * MiB)
    assert a.reserved_bytes == 12 * MiB


def test_a_freed_block_is_reused_and_neighbours_merge() -> None:
    """Two adjacent free blocks serve a request as large as both."""
    a = CachingAllocator()
    x, y = a.malloc(6 * MiB), a.malloc(6 * MiB)
    a.free(x)
    a.free(y)
    a.malloc(9 * MiB)
    assert a.reserved_bytes == 20 * MiB


def test_a_hole_that_is_too_small_costs_a_new_segment() -> None:
    """This is fragmentation: 30 MiB are free, but not in one piece."""
    a = CachingAllocator()
    holes = [a.malloc(15 * MiB) for _ in range(2)]
    for hole in holes:
        a.free(hole)
    a.malloc(20 * MiB)
    assert a.reserved_bytes == 2 * 16 * MiB + 20 * MiB


def test_expandable_segments_do_not_have_such_holes_at_the_end() -> None:
    """The tail of a segment that can grow is extended by what is missing."""
    a = CachingAllocator(expandable=True)
    a.free(a.malloc(15 * MiB))
    a.malloc(30 * MiB)
    assert a.reserved_bytes == 40 * MiB


@given(st.lists(st.tuples(st.integers(1, 30 * MiB), st.integers(0, 5)), max_size=60), st.booleans())
def test_books_balance(requests: list[tuple[int, int]], expandable: bool) -> None:
    """Reserved is never below allocated; with everything freed nothing is allocated, and free blocks make up all that is reserved."""
    a = CachingAllocator(expandable=expandable)
    live: list[Block] = []
    for size, index in requests:
        live.append(a.malloc(size))
        if index < len(live):
            a.free(live.pop(index))
        assert a.allocated_bytes == sum(b.size for b in live)
        assert a.allocated_bytes <= a.reserved_bytes
    for block in live:
        a.free(block)
    assert a.allocated_bytes == 0
    assert sum(size for pool in a.free_places() for size, _ in pool) == a.reserved_bytes


@given(st.lists(st.tuples(st.integers(1, 30 * MiB), st.integers(0, 5)), max_size=40), st.integers(1, 40 * MiB), st.booleans())
def test_a_request_that_is_given_back_at_once_leaves_what_malloc_and_free_leave(requests: list[tuple[int, int]], size: int, expandable: bool) -> None:
    left = []
    for brief in (CachingAllocator.touch, lambda a, n: a.free(a.malloc(n))):
        a, live = CachingAllocator(expandable=expandable), list[Block]()
        for request, index in requests:
            live.append(a.malloc(request))
            if index < len(live):
                a.free(live.pop(index))
        brief(a, size)
        left.append((a.free_places(), a.reserved_bytes, a.allocated_bytes, a.peak_reserved_bytes, a.peak_allocated_bytes, a.peak_requested_bytes))
    assert left[0] == left[1]


def test_unused_segments_go_back_before_a_request_fails() -> None:
    """A card of 40 MiB holds two freed segments of 16 MiB; a request of 30 MiB takes their room, one of 50 MiB cannot."""
    a = CachingAllocator(capacity_bytes=40 * MiB)
    for block in [a.malloc(15 * MiB), a.malloc(15 * MiB)]:
        a.free(block)
    a.malloc(30 * MiB)
    assert (a.num_releases, a.reserved_bytes, a.peak_reserved_bytes) == (1, 30 * MiB, 32 * MiB)
    with pytest.raises(OutOfMemory) as raised:
        a.malloc(50 * MiB)
    assert raised.value.num_bytes == 50 * MiB


def test_a_block_serves_only_its_stream() -> None:
    """What the computation gave back does not serve what is gathered beside it, and the other way round; unused segments of both go back to the card."""
    a = CachingAllocator(capacity_bytes=100 * MiB)
    a.free(a.malloc(40 * MiB))
    a.free(a.malloc(40 * MiB, "gathers"))
    assert a.reserved_bytes == 80 * MiB
    a.free(a.malloc(30 * MiB, "gathers"))
    assert a.reserved_bytes == 80 * MiB
    a.malloc(60 * MiB)
    assert (a.reserved_bytes, a.num_releases) == (60 * MiB, 1)
