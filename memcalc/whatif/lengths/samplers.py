"""Samplers: which samples meet in a batch, and so how wide the batch becomes. A sampler is one class.

Sources: torch/utils/data/sampler.py, ``RandomSampler``; transformers/trainer_pt_utils.py, ``get_length_grouped_indices``; fairseq/data/data_utils.py,
``batch_by_size`` (``max_tokens``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memcalc.dataclass import dataclass
from memcalc.whatif.lengths import order

if TYPE_CHECKING:
    from memcalc.whatif.lengths.distribution import Distribution, Floats, Ints

GROUPS = 50
"""Batches of a group that transformers sorts."""


@dataclass(frozen=True)
class Sampler:
    """Batches of a fixed number of samples, shuffled; each as wide as its longest.

    Attributes:
        name: what it is called.
        batch: sequences of a rank's batch.
        group_batch: of those that are grouped: of all micro-batches of a rank's step.
    """

    name: str
    batch: int
    group_batch: int = 1

    def shapes(self, found: Distribution) -> tuple[Ints, Ints, Floats]:
        """Batches by their shape: sequences, length, and the share of batches that have it."""
        import numpy as np

        below = order.longest_of(found, self.batch)
        return np.full(len(found.lengths), self.batch, dtype=np.int64), found.lengths, np.diff(below, prepend=0.0)

    def by_step(self, epoch: order.Epoch, samples: int) -> float:
        """The probability that within so many samples a batch comes that does not fit."""
        return order.any_bad(epoch, samples)


class Grouped(Sampler):
    """Groups of batches drawn at random and sorted; the longest sample of all comes first of all."""

    def shapes(self, found: Distribution) -> tuple[Ints, Ints, Floats]:
        """As wide as the first of so many neighbours in order."""
        import numpy as np

        times = max(min(found.num_samples // (self.group_batch * 4), GROUPS), 1)
        below = order.longest_of_sorted(found, self.batch, times * self.group_batch)
        return np.full(len(found.lengths), self.batch, dtype=np.int64), found.lengths, np.diff(below, prepend=0.0)

    def by_step(self, epoch: order.Epoch, samples: int) -> float:
        """The first batch holds the longest sample of the epoch."""
        return order.any_bad(epoch, epoch.total) if samples else 0.0


@dataclass(frozen=True)
class TokenBudget(Sampler):
    """As many samples of about one length as a budget of tokens takes; at least one.

    Attributes:
        budget: tokens of a batch, padding included.
    """

    budget: int = 0

    def shapes(self, found: Distribution) -> tuple[Ints, Ints, Floats]:
        """Samples in the order of their lengths, each joined to the batch that is being filled as long as the budget holds it."""
        import numpy as np

        made = list(self._filled(found))
        num = np.asarray([n for _, _, n in made], dtype=np.float64)
        return np.asarray([s for s, _, _ in made], dtype=np.int64), np.asarray([n for _, n, _ in made], dtype=np.int64), num / num.sum()

    def _filled(self, found: Distribution) -> Iterator[tuple[int, int, float]]:
        """Sequences, length and number of equal batches."""
        there, last = 0.0, 0
        for length, count in zip(found.lengths.tolist(), found.counts.tolist(), strict=True):
            most = max(self.budget // length, 1)
            if there and there >= most:
                yield math.ceil(there), last, 1.0
                there = 0.0
            left, last = count, length
            if there + left >= most:
                yield most, length, 1.0
                full, left = divmod(left - (most - there), most)
                there = 0.0
                if full:
                    yield most, length, full
            there += left
        if there:
            yield math.ceil(there), last, 1.0


def sampler_of(name: str, *, batch: int, grad_accum: int, budget: int) -> Sampler:
    """The sampler of a name: random, length-grouped or token-budget."""
    if name == "length-grouped":
        return Grouped(name, batch, batch * grad_accum)
    if name == "token-budget":
        return TokenBudget(name, batch, 1, budget)
    return Sampler(name, batch)


NAMES = ("random", "length-grouped", "token-budget")
