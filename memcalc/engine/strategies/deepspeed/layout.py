"""The flat buffer of stages 1 and 2: where each parameter lies, and which of them reach into one rank's partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memcalc.engine.strategies.deepspeed.common import Member
from memcalc.formulas import zero


class Layout:
    """All trainable parameters end to end, cut into equal partitions; for whole numbers of ranks.

    Args:
        members: the parameters, in order.
        rank: whose partition is asked for.
        round_robin: whether neighbours are dealt out to different ranks (``round_robin_gradients``).
    """

    def __init__(self, members: Sequence[Member], *, rank: int, round_robin: bool) -> None:
        self.members, self.rank, self.round_robin = members, rank, round_robin
        self.num_params = sum(m.numel for m in members)
        self._offsets: dict[int, list[int]] = {}

    def partition(self, ranks: int) -> int:
        """Elements of a partition."""
        return int(zero.partition_numel(self.num_params, ranks=ranks))

    def offset(self, member: Member, ranks: int) -> int:
        """Where a parameter begins."""
        if not self.round_robin:
            return int(member.offset)
        if ranks not in self._offsets:
            self._offsets[ranks] = zero.round_robin_offsets([m.numel for m in self.members], ranks=ranks)
        return self._offsets[ranks][member.position]

    def is_own(self, member: Member, ranks: int) -> int:
        """Whether a parameter reaches into the rank's partition, as 0 or 1."""
        return int(zero.is_touched(self.offset(member, ranks), member.numel, partition=self.partition(ranks), rank=self.rank % ranks))

    def touched(self, ranks: int) -> int:
        """Elements of all parameters that do, whole."""
        places = ((self.offset(m, ranks), m.numel) for m in self.members)
        return int(zero.touched_numel(places, partition=self.partition(ranks), rank=self.rank % ranks))

    def touched_by_rank(self, ranks: int) -> list[int]:
        """The same of every rank."""
        size, found = self.partition(ranks), [0] * ranks
        for m in self.members:
            offset = self.offset(m, ranks)
            for owner in range(offset // size, (offset + m.numel - 1) // size + 1):
                found[owner] += m.numel
        return found

    def flattened(self, ranks: int) -> int:
        """Elements of the partition's gradient when it is flattened: a single tensor that fills the partition is a view."""
        touching = sum(self.is_own(m, ranks) for m in self.members)
        return self.partition(ranks) if touching > 1 or ranks == 1 else 0

    def pieces(self, members: Iterable[Member], ranks: int) -> list[tuple[int, int]]:
        """Some parameters cut where partitions meet: the owner of each piece, and its elements."""
        size = self.partition(ranks)
        return [piece for m in members for piece in zero.pieces(self.offset(m, ranks), m.numel, partition=size)]

    def own_numel(self, member: Member, ranks: int) -> int:
        """Elements of a parameter that lie in the rank's partition."""
        return sum(numel for owner, numel in self.pieces((member,), ranks) if owner == self.rank % ranks)

    def largest_own(self, ranks: int) -> int:
        """The most elements of one parameter in the rank's partition."""
        return max((self.own_numel(m, ranks) for m in self.members), default=0)
