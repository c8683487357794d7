"""Units of fully sharded data parallelism: parameters that are gathered and reduced together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memcalc.engine.plan import Part, Shard
from memcalc.engine.strategies.registration import registered


@dataclass(frozen=True, eq=False)
class Unit:
    """Parameters that are gathered and reduced together.

    Attributes:
        path: the blocks that they belong to.
        shards: they, in the order in which their modules register them; of one repetition.
        repeat: how many equal units follow each other.
        opens, closes: the first and the last part of the forward pass that they serve; None for the root's, which serve all of it.
    """

    path: str
    shards: tuple[Shard, ...]
    repeat: int = 1
    opens: Part | None = None
    closes: Part | None = None

    @property
    def trainable(self) -> list[Shard]:
        """Those that take a gradient."""
        return [s for s in self.shards if s.trainable]

    @property
    def flat_trainable(self) -> list[Shard]:
        """Those whose gradients lie in a flat one: with any that takes one lie all that want one."""
        return [s for s in self.shards if s.wants_gradient] if self.trainable else []


def is_layer(part: Part) -> bool:
    """Whether each repetition of a block is a unit of its own."""
    return bool(part.shards) and (part.block.role in ("layer", "tower") or part.block.repeat > 1)


def unit_of(members: Sequence[Part]) -> Unit:
    """One repetition of some blocks."""
    shards = tuple(s for part in members for s in registered(part))
    return Unit(" + ".join(part.block.path for part in members), shards, members[0].block.repeat, members[0], members[-1])


def root_of(parts: Iterable[Part]) -> Unit:
    """All parameters of some parts, every repetition by itself."""
    held = [part for part in parts if part.shards]
    shards = tuple(s for part in held for _ in range(part.block.repeat) for s in registered(part))
    return Unit(" + ".join(dict.fromkeys(part.block.path for part in held)), shards)
