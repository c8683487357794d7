"""Experts whose three weights are stacked apart, as torchtitan has them (torchtitan/models/moe/moe.py, GroupedExperts)."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.moe import Experts
from memcalc.dataclass import dataclass
from memcalc.specs.model import Weight


@dataclass(frozen=True)
class GroupedExperts(Experts):
    """``w2(silu(w1(x)) * w3(x))`` by each token's experts."""

    def own_weights(self) -> Iterator[Weight]:
        """``w1`` and ``w3`` (experts, intermediate, hidden), ``w2`` (experts, hidden, intermediate)."""
        inwards, back = (self.count, self.intermediate, self.hidden), (self.count, self.hidden, self.intermediate)
        yield Weight("w1", inwards, (("expert", 0), ("expert_column", 1)))
        yield Weight("w2", back, (("expert", 0), ("expert_row", 2)))
        yield Weight("w3", inwards, (("expert", 0), ("expert_column", 1)))
