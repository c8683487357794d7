"""GaLore (Zhao et al. 2024) and APOLLO (Zhu et al. 2024): states of a gradient projected to a low rank."""

from __future__ import annotations

from typing import Any


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers, element by element.

    Source: arithmetic.

    >>> smaller(3, 5)
    3
    """
    return a * (a <= b) + b * (a > b)


def projected_numel(rows: Any, columns: Any, *, rank: Any) -> Any:
    """Elements of a projected gradient: rank times the longer side, or all where the rank is not the smaller.

    Source: galore_torch/galore_projector.py, ``project`` (``std``).

    >>> projected_numel(4096, 11008, rank=128)
    1409024
    """
    shorter = smaller(rows, columns)
    return smaller(rank, shorter) * (rows + columns - shorter)


def projector_numel(rows: Any, columns: Any, *, rank: Any, whole: bool = False) -> Any:
    """Elements of the projection: rank times the shorter side; or, as a view of all singular vectors, the shorter side squared.

    Source: galore_torch/galore_projector.py, ``get_orthogonal_matrix``: of fp32 gradients ``Vh[:rank, :]`` is kept, a view of ``Vh``; of others
    a copy in their dtype.

    >>> projector_numel(4096, 11008, rank=128)
    524288
    >>> projector_numel(4096, 11008, rank=128, whole=True)
    16777216
    """
    shorter = smaller(rows, columns)
    return (shorter if whole else smaller(rank, shorter)) * shorter


def svd_temp_bytes(rows: Any, columns: Any, *, width: int) -> Any:
    """What finding the projection needs, in the first step and then in each 200th: an fp32 copy of the gradient, the solver's own, and the factors U and Vh.

    The solver's workspace is not counted.

    Source: galore_torch/galore_projector.py, ``get_orthogonal_matrix`` (``torch.linalg.svd(matrix, full_matrices=False)``);
    aten/src/ATen/native/cuda/linalg/BatchLinearAlgebraLib.cpp, ``svd_cusolver`` (works on a copy).

    >>> svd_temp_bytes(100, 300, width=2)
    400000
    """
    shorter = smaller(rows, columns)
    return 4 * ((2 if width < 4 else 1) * rows * columns + shorter * (rows + columns))


def galore_temp_bytes(rows: Any, columns: Any, *, rank: Any, width: int) -> Any:
    """Projected gradient, root and quotient, and the update in full size, twice: before and after it is scaled.

    Source: galore_torch/adamw.py, ``step``; galore_projector.py, ``project_back`` (``full_rank_grad * self.scale``).

    Equal to a traced step:

    >>> galore_temp_bytes(64, 300, rank=16, width=2)
    105600
    """
    return width * (2 * rows * columns + 3 * projected_numel(rows, columns, rank=rank))


def galore_8bit_temp_bytes(rows: Any, columns: Any, *, rank: Any, width: int) -> Any:
    """A copy of the weight, the update in full size twice, the projected gradient and its stand-in for the weight.

    Source: galore_torch/adamw8bit.py, ``step`` (``p.saved_data``, ``p.data = grad.clone()``).

    >>> galore_8bit_temp_bytes(100, 300, rank=10, width=2)
    192000
    """
    return width * (3 * rows * columns + 2 * projected_numel(rows, columns, rank=rank))


def apollo_temp_bytes(rows: Any, columns: Any, *, rank: Any, width: int) -> Any:
    """Projected gradient, root and quotient, and the scaled gradient in full size, twice: before and after its growth is limited.

    Source: apollo_torch/apollo.py, ``step`` (``scaled_grad``).

    >>> apollo_temp_bytes(100, 300, rank=10, width=2)
    138000
    """
    return galore_temp_bytes(rows, columns, rank=rank, width=width)
