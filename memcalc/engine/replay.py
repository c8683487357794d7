"""A step played event by event through the caching allocator: what it reserves when every tensor has a place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from memcalc.components.quantized import packed
from memcalc.engine import step
from memcalc.engine.allocator import Block, CachingAllocator, Places
from memcalc.engine.plan import Plan
from memcalc.engine.strategies import Strategy
from memcalc.engine.walk import Reason, Walk
from memcalc.tape.span import Span

NUM_STEPS = 3
"""Steps to play: optimizer states are born at the end of the first, into what the others left; from the second on nothing new comes."""

LATE = "optimizer/"
"""States that torch's optimizers make in their first step."""

PACKED = "packed)"
"""How the path of packed weights ends, after their block's."""

Placed = tuple[int, int, Block]
"""A storage in its place: bytes, its number in the order of coming, and the block."""


class Coming(NamedTuple):
    """A storage that a stretch makes.

    Attributes:
        path, num_bytes: of it.
        number: in the order of coming.
        goes: it goes within the stretch.
        is_brief: it goes at once, before anything else happens.
    """

    path: str
    num_bytes: int
    number: int
    goes: bool = False
    is_brief: bool = False


class Move(NamedTuple):
    """What happens next in a stretch: one storage comes, or several go.

    Attributes:
        coming: what comes.
        going: of those that the stretch made, which go, by their number.
        going_before: of those that were there before it, which go, by path and bytes.
    """

    coming: Coming | None = None
    going: tuple[int, ...] = ()
    going_before: tuple[tuple[str, int], ...] = ()


def moves_of(span: Span) -> list[Move]:
    """The events of a stretch, each storage that goes matched with the last that came of its size under its path."""
    moves: list[Move] = []
    alive: dict[str, list[tuple[int, int]]] = {}
    places: list[int] = []
    for frees, events in groupby(span.events, lambda event: event[0] < 0):
        if not frees:
            for sign, record in events:
                if sign > 0 and record.num_bytes > 0:
                    alive.setdefault(record.path, []).append((record.num_bytes, len(places)))
                    places.append(len(moves))
                    moves.append(Move(Coming(record.path, record.num_bytes, len(places) - 1)))
            continue
        own, before = [], []
        for _, record in events:
            at = _last(alive.get(record.path, []), record.num_bytes)
            if at is not None:
                own.append(alive[record.path].pop(at)[1])
            elif record.num_bytes > 0:
                before.append((record.path, record.num_bytes))
        brief = len(own) == 1 and not before and places[own[0]] == len(moves) - 1
        for index in own:
            coming = moves[places[index]].coming
            assert coming is not None
            moves[places[index]] = Move(coming._replace(goes=True, is_brief=brief))
        if not brief:
            moves.append(Move(None, tuple(sorted(own)), tuple(before)))
    return moves


def _last(placed: Sequence[tuple[Any, ...]], num_bytes: int) -> int | None:
    """Where the last of that size stands."""
    for at in range(len(placed) - 1, -1, -1):
        if placed[at][0] == num_bytes:
            return at
    return None


class Replay(Walk):
    """A walk that also places each storage.

    Args:
        allocator: who places.
        lazy_states: optimizer states appear at the end of the first step (torch's optimizers), not before it (DeepSpeed's).
        pieces: sizes of the tensors of a path that the engine counts in one sum, to place them one by one.
        streams: by what a path begins with, the stream that its tensors are made on, where that is not the computation's.
    """

    def __init__(
        self,
        allocator: CachingAllocator,
        *,
        lazy_states: bool,
        pieces: Callable[[str, int], list[int]],
        streams: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detailed=True)
        self.streams: Mapping[str, str] = streams or {}
        self._streams: dict[str, str] = {}
        self.allocator, self.pieces = allocator, pieces
        self.waiting: list[tuple[str, int]] | None = [] if lazy_states else None
        self._placed: dict[str, list[Placed]] = {}
        self._num_placed = 0
        self._stays: dict[tuple[str, int], int] = {}
        self._moves: dict[int, tuple[Span, list[Move]]] = {}

    # ------------------------------------------------------------------ changes
    def alloc(self, path: str, num_bytes: Any, reason: Reason | None = None) -> None:
        """Count, and place piece by piece."""
        super().alloc(path, num_bytes, reason)
        if self.waiting is not None and path.startswith(LATE):
            self.waiting.append((path, num_bytes))
        else:
            self._place_all(path, num_bytes)

    def keep(self, source: str, path: str, num_bytes: Any, reason: Reason | None = None) -> None:
        """Count, and let the block be where it is: the next to go of the source does not."""
        placed = self._placed_last(source, num_bytes)
        if placed is None:
            self.alloc(path, num_bytes, reason)
            return
        super().alloc(path, num_bytes, reason)
        self._placed.setdefault(path, []).append(placed)
        self._stays[source, num_bytes] = self._stays.get((source, num_bytes), 0) + 1

    def free(self, path: str, num_bytes: Any = None) -> None:
        """Count, and give back so many bytes of the path, the last come first."""
        gone = self.by_path.get(path, 0) if num_bytes is None else num_bytes
        super().free(path, num_bytes)
        while gone > 0 and self._placed.get(path):
            size = self._placed[path][-1][0]
            self._lift(path, size)
            gone -= size
        if gone < 0:
            self._place(path, -gone)

    def touch(self, path: str, num_bytes: Any, reason: Reason | None = None) -> None:
        """Place and give back; the optimizer makes its states before it needs anything else."""
        super().touch(path, num_bytes, reason)
        if path.startswith(LATE):
            self._arrive()
        pieces, stream = [n for n in self.pieces(path, num_bytes) if n], self._stream(path)
        if len(pieces) == 1:
            self.allocator.touch(pieces[0], stream)
            return
        for block in [self.allocator.malloc(n, stream) for n in pieces]:
            self.allocator.free(block)

    def apply(self, span: Span) -> None:
        """Every event of the stretch in turn; of those that go together, the oldest first: which does is up to the version of Python."""
        for path, num_bytes in span.changes.items():
            self._add_path(path, num_bytes)
        if id(span) not in self._moves:
            self._moves[id(span)] = (span, moves_of(span))
        allocator, blocks = self.allocator, dict[int, Block]()
        for come, gone, gone_before in self._moves[id(span)][1]:
            if come is not None:
                if come.is_brief:
                    allocator.touch(come.num_bytes)
                elif come.goes:
                    blocks[come.number] = allocator.malloc(come.num_bytes)
                else:
                    self._place(come.path, come.num_bytes)
                continue
            if gone_before:
                found = (self._placed_last(path, num_bytes) for path, num_bytes in gone_before)
                for _, _, block in sorted((placed for placed in found if placed), key=lambda placed: placed[1]):
                    allocator.free(block)
            for index in gone:
                allocator.free(blocks.pop(index))

    def repeat(self, times: int, body: Callable[[int], None]) -> None:
        """Every turn: where a tensor stands depends on all that came before."""
        for i in range(times):
            body(i)

    # ------------------------------------------------------------------ between steps
    def end_step(self, start: dict[str, int]) -> None:
        """Gradients, the loss and all else that was not there at the start goes; states that waited come."""
        self._arrive()
        for path, num_bytes in list(self.by_path.items()):
            extra = num_bytes - start.get(path, 0)
            if extra > 0:
                self.free(path, extra)

    # ------------------------------------------------------------------ inside
    def _arrive(self) -> None:
        waiting, self.waiting = self.waiting, None
        for path, num_bytes in waiting or ():
            self._place_all(path, num_bytes)

    def _look(self, extra: Any, paths: dict[str, int]) -> None:
        """What is alive at once is not asked for here."""

    def _place_all(self, path: str, num_bytes: int) -> None:
        for piece in self.pieces(path, num_bytes):
            self._place(path, piece)

    def _place(self, path: str, num_bytes: int) -> None:
        if num_bytes > 0:
            self._num_placed += 1
            self._placed.setdefault(path, []).append((num_bytes, self._num_placed, self.allocator.malloc(num_bytes, self._stream(path))))

    def _stream(self, path: str) -> str:
        """The stream that tensors of a path are made on; empty: that of the computation."""
        if path not in self._streams:
            self._streams[path] = next((stream for begin, stream in self.streams.items() if path.startswith(begin)), "")
        return self._streams[path]

    def _lift(self, path: str, num_bytes: int) -> None:
        placed = self._placed_last(path, num_bytes)
        if placed:
            self.allocator.free(placed[2])

    def _placed_last(self, path: str, num_bytes: int) -> Placed | None:
        """Takes out the last block of that size under the path; the last of all when none has it."""
        if self._stays.get((path, num_bytes), 0):
            self._stays[path, num_bytes] -= 1
            return None
        placed = self._placed.get(path)
        if not placed or num_bytes <= 0:
            return None
        at = _last(placed, num_bytes)
        return placed.pop() if at is None else placed.pop(at)


def play(
    plan: Plan,
    strategy: Strategy,
    *,
    accumulated: bool,
    training: bool = True,
    capacity_bytes: int | None = None,
    expandable: bool = False,
    lazy_states: bool = True,
    steps: Sequence[tuple[Plan, Strategy]] = (),
) -> CachingAllocator:
    """The allocator after a few training steps, or one prefill.

    Args:
        plan, strategy: as for `step.train`; all sizes are ints.
        training: rather than inference.
        accumulated: the step has more than one micro-batch.
        capacity_bytes: what the card has for segments.
        expandable: ``expandable_segments:True``.
        lazy_states: see `Replay`.
        steps: of other sizes, which come first.

    Raises:
        OutOfMemory: it does not fit.
    """
    allocator = CachingAllocator(capacity_bytes, expandable=expandable)
    walk = Replay(allocator, lazy_states=lazy_states, pieces=lambda path, num_bytes: pieces_of(plan, path, num_bytes), streams=strategy.streams)
    strategy.resident(walk)
    start = dict(walk.by_path)
    if not training:
        step.forward(walk, plan, strategy)
        return allocator
    for first_plan, first_strategy in steps:
        step.one(walk, first_plan, first_strategy, accumulated=accumulated)
        walk.end_step(start)
    before: Places | None = None
    for _ in range(NUM_STEPS):
        reserved = allocator.peak_reserved_bytes
        step.one(walk, plan, strategy, accumulated=accumulated)
        walk.end_step(start)
        places = allocator.free_places()
        if places == before or (before is not None and allocator.peak_reserved_bytes == reserved):  # the next step finds what this one found, or enough
            break
        before = places
    return allocator


def pieces_of(plan: Plan, path: str, num_bytes: int) -> list[int]:
    """The tensors behind a sum over parameters (weights, moments, square roots), in proportion to the parameters' sizes."""
    topic, _, rest = path.partition("/")
    name, _, kind = rest.partition(" (")
    parts = [p for p in plan.parts if topic != "weights" or p.block.path == name]
    if topic == "weights" and kind == PACKED:
        sizes = [size for p in parts for size in packed(p.block.module).values() for _ in range(p.block.repeat)]
    else:
        sizes = [s.num_params for p in parts for s in p.shards for _ in range(p.block.repeat)] if topic in ("weights", "optimizer") else []
    total = sum(sizes)
    if not total or num_bytes < total // 64:
        return [num_bytes]
    times = 2 if rest.startswith("moments") else 1
    return [num_bytes * n // (total * times) for n in sizes for _ in range(times)]
