"""How much more a pipeline holds on its first stage."""

from __future__ import annotations


def interleaving_factor(*, pp: int, vpp: int) -> float:
    """Activations of the first stage with interleaved model chunks, over those without.

    Source: Korthikanti et al. 2022 (2205.05198), section 4.2.3: ``1 + (p − 1) / (p m)``.

    Args:
        pp: p, pipeline stages.
        vpp: m, model chunks on each.

    >>> round(interleaving_factor(pp=8, vpp=3), 6)
    1.291667
    """
    return 1 + (pp - 1) / (pp * vpp) if vpp > 1 else 1.0


def micro_batches_in_flight(*, pp: int, stage: int, micro_batches: int) -> int:
    """Micro-batches that a stage holds under one forward, one backward.

    Source: Narayanan et al. 2021 (2104.04473), section 2.2.1.

    >>> [micro_batches_in_flight(pp=4, stage=i, micro_batches=8) for i in range(4)]
    [4, 3, 2, 1]
    """
    return min(micro_batches, pp - stage)


def bubble_fraction(*, pp: int, micro_batches: int, vpp: int = 1) -> float:
    """Idle time over the ideal time of a step: what fewer micro-batches in flight cost.

    Source: Narayanan et al. 2021 (2104.04473), sections 2.2.1 and 2.2.2: ``(p − 1) / (v m)``.

    >>> bubble_fraction(pp=8, micro_batches=64)
    0.109375
    """
    return (pp - 1) / (vpp * micro_batches)
