"""The host's memory."""

from __future__ import annotations


def pinned_bytes(num_bytes: int) -> int:
    """Host memory behind a pinned tensor: the next power of two.

    Source: PyTorch, aten/src/ATen/core/CachingHostAllocator.h, ``allocate`` (``PowerOf2Ceil``), unless ``pinned_max_round_threshold_mb`` is set.

    >>> pinned_bytes(1000), pinned_bytes(1024), pinned_bytes(0)
    (1024, 1024, 0)
    """
    return 1 << (num_bytes - 1).bit_length() if num_bytes else 0
