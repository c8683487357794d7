"""Shards, gathers and reductions of PyTorch's fully sharded data parallelism, both versions (sources under torch/distributed/fsdp, torch 2.13)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from memcalc.units import ceil_div, round_up

FLAT_ALIGNMENT_BYTES = 16
"""FSDP1 starts each parameter of a flat one at a multiple of this (_flat_param.py, ``_get_aligned_numel``; with ``use_orig_params``)."""


def chunk_numel(rows: Any, row_numel: Any, *, ranks: Any) -> Any:
    """Elements of a parameter that a rank of FSDP2 holds: an equal part of its rows, the last padded.

    Source: _fully_shard/_fsdp_param.py, ``_init_sharded_param``: every rank holds the size of ``torch.chunk(param, ranks)[0]``.

    Args:
        rows: size of the first axis.
        row_numel: elements of one row.
        ranks: among which it is sharded.

    >>> chunk_numel(10, 8, ranks=4)
    24
    """
    return ceil_div(rows, ranks) * row_numel


def gathered_numel(rows: Any, row_numel: Any, *, ranks: Any) -> Any:
    """Elements of a parameter as FSDP2 gathers it, padding included; also its part of the input of a reduce-scatter.

    Source: _fully_shard/_fsdp_param.py, ``init_all_gather_outputs``; _fully_shard/_fsdp_collectives.py, ``foreach_reduce``.

    >>> gathered_numel(10, 8, ranks=4)
    96
    """
    return ranks * chunk_numel(rows, row_numel, ranks=ranks)


def gather_buffer_bytes(gathered: Any, *, width: int, ranks: Any) -> Any:
    """Where all ranks' shards of a group of parameters arrive, before they are copied out into the parameters; none for one rank.

    Source: _fully_shard/_fsdp_collectives.py, ``foreach_all_gather`` (``all_gather_output``); _fsdp_param_group.py, ``unshard``.

    Args:
        gathered: elements of the group as gathered.
        width: bytes of one.
        ranks: among which it is sharded.

    >>> gather_buffer_bytes(96, width=2, ranks=4), gather_buffer_bytes(96, width=2, ranks=1)
    (192, 0)
    """
    return (ranks > 1) * gathered * width


def flat_offsets(numels: Iterable[Any], *, width: int) -> Iterator[Any]:
    """Where each parameter starts in a flat parameter of FSDP1.

    Source: _flat_param.py, ``_init_flat_param_and_metadata``: padding before a parameter brings it to the alignment.

    Args:
        numels: elements of each parameter, in the order of registration.
        width: bytes of one, in the dtype that is gathered.

    >>> list(flat_offsets([3, 8, 5], width=2))
    [0, 8, 16]
    """
    end: Any = 0
    for numel in numels:
        start = round_up(end, FLAT_ALIGNMENT_BYTES // width)
        yield start
        end = start + numel


def flat_numel(numels: Iterable[Any], *, width: int, ranks: Any) -> Any:
    """Elements of a flat parameter of FSDP1: its parameters one after the other, each aligned, padded to a multiple of the ranks.

    Source: _flat_param.py, ``_init_flat_param_and_metadata``.

    >>> flat_numel([3, 8, 5], width=2, ranks=4)
    24
    """
    sizes = list(numels)
    end: Any = 0
    for start, numel in zip(flat_offsets(sizes, width=width), sizes, strict=True):
        end = start + numel
    return round_up(end, ranks)
