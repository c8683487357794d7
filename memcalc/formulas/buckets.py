"""Buckets: contiguous memory into which gradients are gathered before they are reduced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def ddp_bucket_bytes(num_params: Any, *, width: int, replicas: Any) -> Any:
    """All buckets of DistributedDataParallel together: each gradient once, whatever their sizes; none for one replica.

    They are allocated at construction, and again, in the order in which gradients arrive, after the first step.

    Source: torch/csrc/distributed/c10d/reducer.cpp, ``Reducer::initialize_buckets``.

    Args:
        num_params: parameters that take a gradient.
        width: bytes of one gradient.
        replicas: ranks that reduce them.

    >>> ddp_bucket_bytes(1000, width=2, replicas=4), ddp_bucket_bytes(1000, width=2, replicas=1)
    (2000, 0)
    """
    return (replicas > 1) * num_params * width


def largest_group(numels: Iterable[Any], *, limit: int) -> Any:
    """Elements of the largest group of gradients that is flattened together: a group is closed by the gradient with which it exceeds the limit.

    Source: deepspeed/runtime/engine.py, ``allreduce_no_retain``.

    Args:
        numels: elements of each gradient, in order.
        limit: elements.

    >>> largest_group([4, 4, 4, 9], limit=7), largest_group([4], limit=100)
    (13, 4)
    """
    most, group = 0, 0
    for numel in numels:
        group += numel
        most = max(most, group)
        if group > limit:
            group = 0
    return most
