"""Exact order statistics of batches: how long the longest sample of a batch is, and how likely one too long comes within so many batches.

Of samples that are known an epoch takes each once: draws without replacement (hypergeometric). Of a distribution it takes independent draws (binomial).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memcalc.whatif.lengths.distribution import Distribution


class Epoch(NamedTuple):
    """The samples of an epoch, by whether their batch fits.

    Attributes:
        total: how many there are.
        bad: those whose batch does not fit; of a distribution, as many as are expected.
        known: they are known one by one; otherwise they are independent draws.
    """

    total: int
    bad: float
    known: bool


def any_bad(epoch: Epoch, draws: int) -> float:
    """The probability that one of so many samples is bad.

    ``1 - C(N - m, k) / C(N, k)`` of N known samples with m bad ones; ``1 - (1 - p)^k`` of independent draws.
    """
    if not epoch.bad or not draws:
        return 0.0
    if not epoch.known:
        share = epoch.bad / epoch.total
        return -math.expm1(draws * math.log1p(-share)) if share < 1 else 1.0
    bad = round(epoch.bad)
    draws = min(draws, epoch.total)
    if draws > epoch.total - bad:
        return 1.0
    return -math.expm1(_log_choose(epoch.total - bad, draws) - _log_choose(epoch.total, draws))


def expected_before(epoch: Epoch) -> float | None:
    """How many samples come before the first that is bad, on average; None where there is none.

    ``(N - m) / (m + 1)`` of known samples, ``1 / p - 1`` of independent draws.
    """
    if not epoch.bad:
        return None
    return (epoch.total - epoch.bad) / (epoch.bad + 1) if epoch.known else epoch.total / epoch.bad - 1.0


def longest_of(found: Distribution, batch: int) -> NDArray[np.float64]:
    """The probability that the longest of a random batch is at most each of the lengths."""
    import numpy as np

    below = np.cumsum(found.counts)
    if not found.known:
        return np.asarray((below / below[-1]) ** batch)
    total = found.num_samples
    batch = min(batch, total)
    share = np.ones(len(below))
    for i in range(batch):
        share *= np.maximum(below - i, 0.0) / (total - i)
    return share


def longest_of_sorted(found: Distribution, batch: int, group: int) -> NDArray[np.float64]:
    """The same on average over the batches of a group of samples that is drawn at random and then sorted, longest first.

    The j-th of its batches begins with the sample of rank ``j * batch``: it is at most so long where no more than ``j * batch`` samples of the group
    are longer.
    """
    import numpy as np

    group = min(group, found.num_samples)
    num_batches = max(math.ceil(group / batch), 1)
    below = np.cumsum(found.counts)
    places = _thinned(below / below[-1])
    shares = [_sorted_share(found, float(below[at]), batch, group, num_batches) for at in places]
    share = np.interp(np.arange(len(below)), places, shares)
    share[-1] = 1.0
    return share


def _sorted_share(found: Distribution, below: float, batch: int, group: int, num_batches: int) -> float:
    """The mean over batches of P(at most j * batch of the group are longer)."""
    total = float(found.counts.sum())
    longer = total - below
    chances = _hypergeometric(found.num_samples, round(longer), group) if found.known else _binomial(longer / total, group)
    cumulated, sum_of = 0.0, 0.0
    marks = {j * batch for j in range(num_batches)}
    for k, chance in enumerate(chances):
        cumulated += chance
        if k in marks:
            sum_of += min(cumulated, 1.0)
    return sum_of / num_batches


def _binomial(chance: float, draws: int) -> list[float]:
    if chance <= 0:
        return [1.0] + [0.0] * draws
    if chance >= 1:
        return [0.0] * draws + [1.0]
    logs = math.log(chance), math.log1p(-chance)
    return [math.exp(_log_choose(draws, k) + k * logs[0] + (draws - k) * logs[1]) for k in range(draws + 1)]


def _hypergeometric(total: int, marked: int, draws: int) -> list[float]:
    whole = _log_choose(total, draws)
    return [
        math.exp(_log_choose(marked, k) + _log_choose(total - marked, draws - k) - whole) if k <= marked and draws - k <= total - marked else 0.0
        for k in range(draws + 1)
    ]


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _thinned(shares: NDArray[np.float64], most: int = 256) -> NDArray[np.int64]:
    """Indices of lengths that stand for all: the ends, and evenly spread shares with more of them towards the long end."""
    import numpy as np

    tail = 1 - np.geomspace(1e-9, 1.0, most)
    wanted = np.concatenate([np.linspace(0, 1, most), tail])
    found = np.searchsorted(shares, wanted).clip(0, len(shares) - 1)
    return np.unique(np.concatenate([[0, len(shares) - 1], found])).astype(np.int64)
