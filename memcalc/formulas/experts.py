"""How many rows of tokens a rank's experts get. Shares are fractions, (numerator, denominator)."""

from __future__ import annotations

import math
from typing import Any

from memcalc.units import ceil_div

Share = tuple[int, int]
EVEN: Share = (1, 1)


def share(value: float) -> Share:
    """A share as people write it, to six decimals.

    Source: definition.

    >>> share(2.8), share(1)
    ((14, 5), (1, 1))
    """
    numerator, denominator = round(value * 10**6), 10**6
    common = math.gcd(numerator, denominator)
    return numerator // common, denominator // common


def busiest_share(share_of_tokens: float, *, ep: int) -> float:
    """What the busiest expert-parallel rank gets over the even share, from its share of all tokens.

    Source: the even share is 1 / ep (Fedus et al. 2021, 2101.03961, section 2.2).

    >>> busiest_share(0.7, ep=4)
    2.8
    """
    return share_of_tokens * ep


def other_share(busiest: Share, *, ep: int) -> Share:
    """What each of the other ranks gets over the even share, where they share the rest evenly.

    Source: all shares sum to ep (Fedus et al. 2021, 2101.03961, section 2.2).

    >>> other_share((14, 5), ep=4)
    (2, 5)
    """
    rest, whole = ep * busiest[1] - busiest[0], (ep - 1) * busiest[1]
    common = math.gcd(rest, whole)
    return rest // common, whole // common


def sent_share(capacity: Share | None, *, padded: bool) -> Share:
    """Rows that a rank sends over tokens * top_k, under even routing.

    Source: megatron/core/transformer/moe/moe_utils.py, ``apply_router_token_dropping``: what goes over an expert's capacity is dropped;
    with padding every expert gets as many rows as its capacity.

    >>> sent_share((3, 4), padded=False), sent_share((5, 4), padded=False), sent_share((5, 4), padded=True)
    ((3, 4), (1, 1), (5, 4))
    """
    if capacity is None or (capacity[0] >= capacity[1] and not padded):
        return EVEN
    return capacity


def received_share(share: Share, capacity: Share | None, *, padded: bool) -> Share:
    """Rows that a rank's experts get over tokens * top_k: its share, at most their capacity.

    Source: as for `sent_share`.

    >>> received_share((14, 5), (5, 4), padded=False)
    (5, 4)
    """
    if capacity is None:
        return share
    return capacity if padded or share[0] * capacity[1] > capacity[0] * share[1] else share


def rows(count: Any, share: Share) -> Any:
    """A count times a share, rounded up; ints or integer arrays.

    Source: as for `received_share`.

    >>> rows(10, (14, 5))
    28
    """
    return count if share == EVEN else ceil_div(count * share[0], share[1])
