"""Lengths of samples: how many there are of each, in a data set, or how likely each is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from memcalc.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = "NDArray[np.int64]"
    Floats: TypeAlias = "NDArray[np.float64]"

LONGEST = 1 << 24
"""No longer sample is taken: counts are kept for every length up to the longest."""


class Distribution(NamedTuple):
    """Lengths and how many samples have each.

    Attributes:
        lengths: that occur, rising.
        counts: of samples; for a distribution, expected ones.
        num_samples: of one epoch.
        known: the samples themselves are known, each of which an epoch has once; otherwise an epoch is so many independent draws.
        name: what it is of.
    """

    lengths: Ints
    counts: Floats
    num_samples: int
    known: bool
    name: str

    @property
    def longest(self) -> int:
        """The longest that occurs."""
        return int(self.lengths[-1])

    def share_up_to(self, length: float) -> float:
        """The share of samples that are at most so long."""
        import numpy as np

        at = int(np.searchsorted(self.lengths, length, side="right"))
        return float(self.counts[:at].sum() / self.counts.sum())

    def num_longer(self, length: float) -> int:
        """Known samples that are longer."""
        import numpy as np

        return round(float(self.counts[int(np.searchsorted(self.lengths, length, side="right")) :].sum()))

    def quantile(self, share: float) -> int:
        """The shortest length that so large a share does not exceed."""
        import numpy as np

        cumulated = np.cumsum(self.counts)
        return int(self.lengths[min(int(np.searchsorted(cumulated, share * cumulated[-1] * (1 - 1e-12))), len(self.lengths) - 1)])

    @property
    def mean(self) -> float:
        """Tokens of a sample."""
        return float((self.lengths * self.counts).sum() / self.counts.sum())


def counted(counts: Ints, *, name: str) -> Distribution:
    """The distribution of known samples.

    Args:
        counts: of each length from 0 on.
        name: where they are from.

    Raises:
        InputError: there are none, or some are empty.
    """
    import numpy as np

    if counts.size and counts[0]:
        raise InputError(f"{int(counts[0]):,} samples have length 0; lengths are whole numbers from 1", where=name)
    lengths = np.flatnonzero(counts)
    if not len(lengths):
        raise InputError("holds no lengths", where=name)
    return Distribution(lengths.astype(np.int64), counts[lengths].astype(np.float64), int(counts.sum()), known=True, name=name)


def from_quantiles(points: dict[float, float], *, num_samples: int, name: str) -> Distribution:
    """A distribution that is even between its quantiles.

    Args:
        points: lengths by share, among them the longest at 1.
        num_samples: of an epoch.
        name: where they are from.

    Raises:
        InputError: they do not rise, or the longest is missing.
    """
    import numpy as np

    shares = sorted(points)
    values = [points[share] for share in shares]
    if not shares or shares[-1] != 1.0:
        raise InputError("a list of quantiles needs the longest, too: max: 8192", where=name)
    if values != sorted(values) or values[0] < 1 or values[-1] > LONGEST:
        raise InputError(f"quantiles rise, from 1 to at most {LONGEST:,}", where=name)
    if shares[0] > 0:
        shares, values = [0.0, *shares], [1.0, *values]
    lengths: Ints = np.arange(1, int(values[-1]) + 1, dtype=np.int64)
    below = np.interp(lengths, values, shares)
    below[-1] = 1.0
    return of_shares(lengths, np.diff(below, prepend=0.0), num_samples=num_samples, name=name)


def of_shares(lengths: Ints, shares: Floats, *, num_samples: int, name: str) -> Distribution:
    """A distribution by the share of each length; those that do not occur are left out."""
    there = shares > 0
    return Distribution(lengths[there], shares[there] / shares.sum() * num_samples, num_samples, known=False, name=name)
