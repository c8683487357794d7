"""The CUDA caching allocator, played through: what a step reserves, not only what it allocates.

torch's allocator keeps every segment that it ever got and hands out pieces of them, so that what is reserved depends on the order in
which sizes come and go. The rules and constants are those of c10/cuda/CUDACachingAllocator.cpp (`round_size`, `get_allocation_size`,
`get_free_block`, `should_split`, `try_merge_blocks`; no garbage collection, no split limit).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from memcalc.units import MiB, round_up

MIN_BLOCK_BYTES = 512
"""kMinBlockSize: every request is rounded up to a multiple."""
SMALL_BYTES = MiB
"""kSmallSize: the largest request served from the small pool."""
SMALL_SEGMENT_BYTES = 2 * MiB
"""kSmallBuffer: a segment of the small pool."""
LARGE_SEGMENT_BYTES = 20 * MiB
"""kLargeBuffer: a segment for requests between kSmallSize and kMinLargeAlloc."""
MIN_LARGE_BYTES = 10 * MiB
"""kMinLargeAlloc: from here on a request gets a segment of its own size."""
ROUND_LARGE_BYTES = 2 * MiB
"""kRoundLarge: such a segment is rounded up to a multiple."""


def _rounded(num_bytes: int) -> int:
    return MIN_BLOCK_BYTES if num_bytes <= MIN_BLOCK_BYTES else -(-num_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


class OutOfMemory(Exception):  # noqa: N818 (torch's name for it)
    """A request that no free block serves and for which the card has no room left, even with every unused segment given back.

    Attributes:
        num_bytes: of the segment that was wanted.
        reserved_bytes: held at that time.
    """

    def __init__(self, num_bytes: int, reserved_bytes: int) -> None:
        super().__init__(f"{num_bytes} bytes wanted, {reserved_bytes} reserved")
        self.num_bytes, self.reserved_bytes = num_bytes, reserved_bytes


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment."""

    address: int
    size: int
    pool: Pool
    is_free: bool = False
    requested: int = 0
    before: Block | None = None
    after: Block | None = None


@dataclass(eq=False, slots=True)
class Pool:
    """Free blocks that may serve a request: those of its stream and of its kind.

    Attributes:
        is_small: of requests of at most `SMALL_BYTES`.
        min_rest: what a request leaves of a block is a block of its own from here on.
        free: size and address of each, in order.
        tail: where segments grow in place, the last block.
    """

    is_small: bool
    min_rest: int
    free: list[tuple[int, int]] = field(default_factory=list)
    tail: Block | None = None


Places = tuple[tuple[tuple[int, int], ...], ...]
"""Size and address of free blocks, pool by pool."""


@dataclass
class CachingAllocator:
    """Hands out blocks of segments.

    A block serves only the stream that it was first had for (`get_free_block` looks up `p.search_key`, which begins with the stream). An event
    that a block waits for when other streams used it (`record_stream`) is taken to have happened when it is given back.

    Attributes:
        capacity_bytes: what the card has for segments; a request beyond it first gives back every segment that is wholly free
            (`release_cached_blocks`), which stalls the device, and fails after that. None: no end.
        expandable: segments grow in place (``expandable_segments:True``): one for each pool, mapped page by page.
        num_releases: how often segments were given back.
        reserved_bytes, allocated_bytes, requested_bytes: now: in segments, in blocks handed out, asked for; with ``peak_`` before
            them, the most so far.
    """

    capacity_bytes: int | None = None
    expandable: bool = False
    num_releases: int = 0
    reserved_bytes: int = 0
    allocated_bytes: int = 0
    requested_bytes: int = 0
    peak_reserved_bytes: int = 0
    peak_allocated_bytes: int = 0
    peak_requested_bytes: int = 0
    _address: int = 0
    _pools: dict[str, tuple[Pool, Pool]] = field(default_factory=dict)
    _at: dict[int, Block] = field(default_factory=dict)

    def malloc(self, num_bytes: int, stream: str = "") -> Block:
        """A block for a request of at least one byte, made on a stream."""
        size = _rounded(num_bytes)
        pool = self._pool(size, stream)
        at = bisect_left(pool.free, (size, -1))  # the smallest free block that is large enough, at the lowest address
        if at < len(pool.free):
            block = self._at[pool.free.pop(at)[1]]
            block.is_free = False
        else:
            block = self._grow(size, pool) if self.expandable else self._segment(size, pool)
        if block.size - size >= pool.min_rest:
            self._split(block, size)
        block.requested = num_bytes
        self.requested_bytes += num_bytes
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.peak_allocated_bytes:  # noqa: PLR1730 (max takes twice as long, and this is asked for every tensor)
            self.peak_allocated_bytes = self.allocated_bytes
        if self.requested_bytes > self.peak_requested_bytes:  # noqa: PLR1730
            self.peak_requested_bytes = self.requested_bytes
        return block

    def free(self, block: Block) -> None:
        """Give a block back; it merges with free neighbours."""
        self.allocated_bytes -= block.size
        self.requested_bytes -= block.requested
        for near in (block.before, block.after):
            if near is not None and near.is_free:
                self._remove(near)
                self._merge(block, near)
        self._insert(block)

    def touch(self, num_bytes: int, stream: str = "") -> None:
        """The same as to free what `malloc` gives, at once: a free block that serves is whole again."""
        size = _rounded(num_bytes)
        pool = self._pool(size, stream)
        at = bisect_left(pool.free, (size, -1))
        if at == len(pool.free):
            self.free(self.malloc(num_bytes, stream))
            return
        there = pool.free[at][0]
        taken = size if there - size >= pool.min_rest else there
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes + taken)
        self.peak_requested_bytes = max(self.peak_requested_bytes, self.requested_bytes + num_bytes)

    def free_places(self) -> Places:
        """The free blocks of each pool: where the next requests will go."""
        return tuple(tuple(pool.free) for pools in self._pools.values() for pool in pools)

    # ------------------------------------------------------------------ inside
    def _pool(self, size: int, stream: str) -> Pool:
        pools = self._pools.get(stream)
        if pools is None:
            pools = self._pools[stream] = (Pool(False, MIN_BLOCK_BYTES if self.expandable else SMALL_BYTES + 1), Pool(True, MIN_BLOCK_BYTES))  # noqa: FBT003
        return pools[size <= SMALL_BYTES]

    def _segment(self, size: int, pool: Pool) -> Block:
        got = SMALL_SEGMENT_BYTES if pool.is_small else LARGE_SEGMENT_BYTES if size < MIN_LARGE_BYTES else round_up(size, ROUND_LARGE_BYTES)
        return self._new(got, pool)

    def _grow(self, size: int, pool: Pool) -> Block:
        page = SMALL_SEGMENT_BYTES if pool.is_small else LARGE_SEGMENT_BYTES
        tail = pool.tail
        if tail is not None and tail.is_free:
            self._remove(tail)
            tail.is_free = False
            more = round_up(size - tail.size, page)
            self._room(more)
            tail.size += more
            self._reserve(more)
            return tail
        block = self._new(round_up(size, page), pool)
        block.before = tail
        if tail is not None:
            tail.after = block
        pool.tail = block
        return block

    def _room(self, size: int) -> None:
        """See that so many more bytes can be had from the card.

        Raises:
            OutOfMemory: they cannot.
        """
        if self.capacity_bytes is None or self.reserved_bytes + size <= self.capacity_bytes:
            return
        self.num_releases += 1
        for pool in (pool for pools in self._pools.values() for pool in pools):
            for entry in list(pool.free):
                block = self._at[entry[1]]
                if block.before is None and block.after is None:
                    pool.free.remove(entry)
                    del self._at[block.address]
                    if pool.tail is block:
                        pool.tail = None
                    self.reserved_bytes -= block.size
        if self.reserved_bytes + size > self.capacity_bytes:
            raise OutOfMemory(size, self.reserved_bytes)

    def _new(self, size: int, pool: Pool) -> Block:
        self._room(size)
        block = Block(self._address, size, pool)
        self._at[block.address] = block
        # Far enough apart that growing segments never meet.
        self._address += size + (1 << 44 if self.expandable else 0)
        self._reserve(size)
        return block

    def _reserve(self, size: int) -> None:
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, block.pool, before=block, after=block.after)
        if rest.after is not None:
            rest.after.before = rest
        if block.pool.tail is block:
            block.pool.tail = rest
        block.size, block.after = size, rest
        self._at[rest.address] = rest
        self._insert(rest)

    def _merge(self, block: Block, near: Block) -> None:
        del self._at[near.address if near is block.after else block.address]
        if near is block.after:
            block.after = near.after
            if near.after is not None:
                near.after.before = block
        else:
            block.address, block.before = near.address, near.before
            self._at[block.address] = block
            if near.before is not None:
                near.before.after = block
        block.size += near.size
        if block.pool.tail is near:
            block.pool.tail = block

    def _insert(self, block: Block) -> None:
        block.is_free = True
        insort(block.pool.free, (block.size, block.address))

    def _remove(self, block: Block) -> None:
        free = block.pool.free
        del free[bisect_left(free, (block.size, block.address))]
