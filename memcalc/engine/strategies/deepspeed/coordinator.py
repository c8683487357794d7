"""Which parameters are whole at each moment of stage 3: fetched before the module that uses them, fetched ahead, kept for reuse, released.

A transcript of zero/partitioned_param_coordinator.py (``PartitionedParameterCoordinator``) once it knows the order of modules, which is from the
third pass on. Its decisions depend on sizes of parameters alone; what they cost is told to a `Ledger`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

NEVER = -(10**10)


class Param:
    """A parameter that is cut over the ranks.

    Attributes:
        index: its place among all, in the order in which they were made (``ds_id``).
        numel: elements.
        trainable: whether it takes a gradient.
        persists: small enough to stay whole between its uses.
        width: bytes of an element.
        status: partitioned, in flight, or whole.
        users: modules that use it now.
        bundle: what it was gathered in, while that is not let go of.
        copied: whether it was copied out of a bundle; otherwise it is the buffer that it was gathered into.
        fetched_for: the latest place in the order of modules that a fetch ahead has taken care of.
        uses: its places in the order of modules.
    """

    __slots__ = ("bundle", "copied", "fetched_for", "index", "numel", "persists", "status", "trainable", "users", "uses", "width")

    def __init__(self, index: int, numel: int, *, trainable: bool, persists: bool, width: int = 2) -> None:
        self.width = width
        self.index, self.numel, self.trainable, self.persists = index, numel, trainable, persists
        self.status = "partitioned"
        self.users: set[str] = set()
        self.bundle: Bundle | None = None
        self.copied = False
        self.fetched_for = NEVER
        self.uses: list[int] = []


class Bundle:
    """Parameters that are gathered at once, into one buffer, which lives until each of them has been waited for."""

    __slots__ = ("arrived", "params", "waiting")

    def __init__(self, params: list[Param]) -> None:
        self.params, self.waiting, self.arrived = params, len(params), False


class Ledger(Protocol):
    """What gathering and releasing do to memory."""

    def gather(self, params: Sequence[Param]) -> None:
        """A buffer for these parameters; a single one lives in it from there on."""

    def copy_out(self, params: Sequence[Param]) -> None:
        """They are copied out of their buffer."""

    def drop_buffer(self, params: Sequence[Param]) -> None:
        """Their buffer goes."""

    def release(self, param: Param) -> None:
        """A whole parameter goes."""


class Limits(NamedTuple):
    """The knobs of ``zero_optimization``, in elements."""

    prefetch: int
    max_live: int
    max_reuse: int
    sequential: bool = False


class Coordinator:
    """One pass after another over a known order of modules.

    Args:
        order: the parameters of each module call of a pass, forward and backward, in order; many are empty.
        limits: how much to fetch ahead, to keep, to hold.
        ledger: what to tell.
    """

    def __init__(self, order: Sequence[Sequence[Param]], *, limits: Limits, ledger: Ledger) -> None:
        self.order, self.limits, self.ledger = order, limits, ledger
        self.before = [0]
        for place, params in enumerate(order):
            self.before.append(self.before[-1] + sum(p.numel for p in params))
            for p in params:
                p.uses.append(place)
        self.entries = [(p, place) for place, params in enumerate(order) for p in sorted(params, key=lambda p: p.index)]
        self.queue: deque[tuple[Param, int]] = deque()
        self.place = 0
        self.live = 0
        self.running_back: dict[str, tuple[Sequence[Param], list[Param]]] = {}

    def begin(self) -> None:
        """A new pass (``reset_step``)."""
        self.queue = deque(self.entries)
        self.place = self.live = 0
        for p, _ in self.entries:
            p.fetched_for = NEVER

    # ------------------------------------------------------------------ fetching
    def fetch(self, name: str, params: Sequence[Param], *, backward: bool = False, recompute: bool = False) -> None:
        """A module is about to run: its parameters, then some of what comes (``fetch_sub_module``)."""
        if backward:
            self.running_back[name] = (params, [])
        self.gather([p for p in params if p.status == "partitioned"])
        for p in params:
            p.users.add(name)
            if recompute and self.running_back and not p.trainable:
                self._attribute(p)
            self.wait(p)
        self._discard(params)
        self._ahead()
        self.place += 1

    def _attribute(self, p: Param) -> None:
        """A frozen parameter that is fetched for recomputation stays until the module that runs back has done so."""
        owner = next(reversed(self.running_back))
        self.running_back[owner][1].append(p)
        p.users.add(owner)

    def _discard(self, params: Sequence[Param]) -> None:
        """What is used now need not be fetched ahead."""
        missing = {p for p in params if p.fetched_for < self.place}
        found: set[Param] = set()
        while self.queue and len(found) < len(missing):
            p, place = self.queue.popleft()
            p.fetched_for = place
            found.add(p)

    def _ahead(self) -> None:
        """Fetch ahead until the bucket is full; what is whole already is passed over, and noted as taken care of."""
        room = min(self.limits.max_live - self.live, self.limits.prefetch)
        chosen: dict[Param, None] = {}
        numel = 0
        while self.queue and numel < room:
            p, place = self.queue.popleft()
            p.fetched_for = max(p.fetched_for, place)
            if p.status == "partitioned" and p not in chosen:
                chosen[p] = None
                numel += p.numel
        self.gather(list(chosen))

    def gather(self, params: list[Param]) -> None:
        """All-gather parameters together, or one by one where so configured (``__all_gather_params_``)."""
        if not params:
            return
        self.live += sum(p.numel for p in params)
        for group in [[p] for p in params] if self.limits.sequential else [params]:
            self.ledger.gather(group)
            bundle = Bundle(group)
            for p in group:
                p.status, p.bundle, p.copied = "in flight", bundle, len(group) > 1

    def wait(self, p: Param) -> None:
        """A parameter is needed now. The first of a bundle brings all of it; its buffer goes with the last (``AllGatherCoalescedHandle``)."""
        bundle, p.bundle = p.bundle, None
        if bundle is None:
            return
        if not bundle.arrived:
            bundle.arrived = True
            for other in bundle.params:
                other.status = "whole"
            if len(bundle.params) > 1:
                self.ledger.copy_out(bundle.params)
        bundle.waiting -= 1
        if not bundle.waiting and len(bundle.params) > 1:
            self.ledger.drop_buffer(bundle.params)

    # ------------------------------------------------------------------ releasing
    def release(self, name: str, params: Sequence[Param], *, backward: bool = False) -> None:
        """A module has run: its parameters go, unless they persist or are used again soon (``release_sub_module``)."""
        going = [p for p in params if self._may_go(p)]
        owned = self.running_back.pop(name, ((), []))[1] if backward else []
        for p in dict.fromkeys((*params, *owned)):
            p.users.discard(name)
            if p in going or (p in owned and not p.persists):
                self.drop(p)

    def _may_go(self, p: Param) -> bool:
        """Whether it is not used again within the reuse distance (``__params_to_release``)."""
        if p.persists or p.fetched_for > self.place:
            return False
        i = bisect_left(p.uses, self.place)
        return i == len(p.uses) or self.before[p.uses[i]] - self.before[self.place] >= self.limits.max_reuse

    def drop(self, p: Param) -> None:
        """It is partitioned again, if nothing uses it."""
        if p.status == "whole" and not p.users:
            self.ledger.release(p)
            p.status = "partitioned"
            self.live -= p.numel

    def end_backward(self) -> None:
        """Modules whose input takes no gradient are released at last (``release_backward_leftovers``)."""
        while self.running_back:
            name, (params, owned) = self.running_back.popitem()
            for p in dict.fromkeys((*params, *owned)):
                p.users.discard(name)
                if not p.persists:
                    self.drop(p)
