"""Muon (Jordan et al. 2024): momentum alone, and updates made orthogonal by Newton-Schulz iterations."""

from __future__ import annotations

from typing import Any

from memcalc.formulas.optimizers.low_rank import smaller


def muon_temp_bytes(rows: Any, columns: Any, *, width: int) -> Any:
    """The update, two bf16 iterates, and two bf16 products of the shorter side; equal to a traced step.

    Source: torch/optim/_muon.py, ``_single_tensor_muon`` (``grad.lerp``), ``_zeropower_via_newtonschulz`` (``gram_matrix``, ``gram_update``).

    Args:
        rows, columns: of a matrix.
        width: bytes of a gradient's element.

    >>> muon_temp_bytes(64, 300, width=2), muon_temp_bytes(64, 300, width=4)
    (131584, 169984)
    """
    shorter = smaller(rows, columns)
    return (width + 4) * rows * columns + 4 * shorter * shorter
