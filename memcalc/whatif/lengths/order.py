"""Exact order statistics of batches: how long the longest sample of a batch is, and how likely one too long comes within so many batches.

Of samples that are known an epoch takes each once: draws without replacement (hypergeometric). Of a distribution it takes independent draws (binomial).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memcalc.whatif.lengths.distribution import Distribution


def any_longer(found: Distribution, length: int, draws: int) -> float:
    """The probability that one of so many samples is longer.

    ``1 - C(N - m, k) / C(N, k)`` of N known samples with m longer ones; ``1 - F(length)^k`` of a distribution.
    """
    if not found.known:
        within = found.share_up_to(length)
        return 1.0 - within**draws if within > 0 else 1.0
    total, longer = found.num_samples, found.num_longer(length)
    draws = min(draws, total)
    if draws > total - longer:
        return 1.0
    return -math.expm1(_log_choose(total - longer, draws) - _log_choose(total, draws))


def expected_before(found: Distribution, length: int) -> float | None:
    """How many samples come before the first that is longer, on average; None where there is none.

    ``(N - m) / (m + 1)`` of known samples, ``1 / p - 1`` of a distribution.
    """
    if found.known:
        longer = found.num_longer(length)
        return (found.num_samples - longer) / (longer + 1) if longer else None
    beyond = 1.0 - found.share_up_to(length)
    return 1.0 / beyond - 1.0 if beyond > 0 else None


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
    share = np.zeros(len(below))
    lengths = _thinned(below / below[-1])
    for at in lengths:
        share[at] = _sorted_share(found, float(below[at]), batch, group, num_batches)
    share = np.interp(np.arange(len(below)), lengths, share[lengths])
    share[-1] = 1.0
    return share


def _sorted_share(found: Distribution, below: float, batch: int, group: int, num_batches: int) -> float:
    """The mean over batches of P(at most j * batch of the group are longer)."""
    total = float(found.counts.sum())
    longer = total - below
    if longer <= 0.5 * (total / max(found.num_samples, 1)) and found.known:
        return 1.0
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
