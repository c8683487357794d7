"""What a process has on the card outside the caching allocator's tensors: context, library workspaces, communicators.

None of it can be derived from a model; each figure is a reading or a library's default, with its place.
"""

from __future__ import annotations

from typing import Any

from memcalc.units import KiB, MiB

CUDA_CONTEXT_BYTES = 481 * MiB
"""A CUDA context with lazily loaded modules: 481 MiB read on an A100 with torch 2.1.1; 426 MiB on an RTX 6000 Ada with torch 2.10."""

EAGER_CONTEXT_BYTES = 942 * MiB
"""The same with all modules loaded at once (CUDA_MODULE_LOADING=EAGER, and torch 1.x): read on an A100 with torch 2.1.1."""

CUBLAS_WORKSPACE_BYTES = 2 * 4096 * KiB + 8 * 16 * KiB
"""torch's default CUBLAS_WORKSPACE_CONFIG :4096:2:16:8 (aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize)."""

HOPPER_WORKSPACE_BYTES = 32 * MiB
"""The same on Hopper and Blackwell."""

CUBLASLT_WORKSPACE_BYTES = MiB
"""torch's default CUBLASLT_WORKSPACE_SIZE of 1024 KiB (aten/src/ATen/cuda/CUDABlas.cpp, _parseChosenWorkspaceSize)."""

NCCL_PAIR_BYTES = 342 * MiB
"""One NCCL communicator of two ranks: aiconfigurator, systems/*.yaml, nccl_mem, "based on observations"."""

NCCL_GROUP_BYTES = 392 * MiB
"""One NCCL communicator of four or more ranks: the same place."""


def workspace_bytes(*, hopper: bool, training: bool) -> int:
    """Workspaces of cuBLAS and cuBLASLt on one stream; torch's own allocator hands them out, and counts them among what is allocated.

    Handles are those of a thread, and the backward pass has a thread of its own.

    Source: aten/src/ATen/cuda/CublasHandlePool.cpp, ``getCurrentCUDABlasHandle``, and CUDABlas.cpp.

    Args:
        hopper: the card is of Hopper's generation or later.
        training: there is a backward pass.

    >>> workspace_bytes(hopper=False, training=False), workspace_bytes(hopper=True, training=True) // 2**20
    (9568256, 66)
    """
    once = (HOPPER_WORKSPACE_BYTES if hopper else CUBLAS_WORKSPACE_BYTES) + CUBLASLT_WORKSPACE_BYTES
    return once * (1 + training)


def nccl_bytes(num_ranks: int) -> int:
    """Buffers of one communicator.

    Source: aiconfigurator, systems/*.yaml, nccl_mem.

    Args:
        num_ranks: ranks of the group.

    >>> nccl_bytes(1), nccl_bytes(8) // 2**20
    (0, 392)
    """
    return 0 if num_ranks <= 1 else NCCL_PAIR_BYTES if num_ranks == 2 else NCCL_GROUP_BYTES


def communicators(degrees: dict[str, Any]) -> dict[str, int]:
    """Buffers by parallel dimension: a communicator for each that has more than one rank.

    Source: torch.distributed, one process group a mesh dimension (torch/distributed/device_mesh.py).

    >>> communicators({"tp": 1, "dp": 4})
    {'dp': 411041792}
    """
    return {name: nccl_bytes(ranks) for name, ranks in degrees.items() if ranks > 1}
