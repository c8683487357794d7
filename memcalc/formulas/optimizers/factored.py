"""A second moment of which only the means of rows and columns are kept (Adafactor, Shazeer and Stern 2018), and weights stepped in backward (LOMO)."""

from __future__ import annotations

from typing import Any


def factored_bytes(shape: tuple[Any, ...]) -> Any:
    """fp32 means of the rows and of the columns of a matrix (or of each in a stack); the whole second moment of a vector.

    Source: transformers/optimization.py, ``Adafactor.step`` (``exp_avg_sq_row``, ``exp_avg_sq_col``, made in the dtype of the fp32 gradient);
    lomo_optim/adalomo.py, ``__init__``.

    >>> factored_bytes((1000, 500))
    6000
    >>> factored_bytes((1000,))
    4000
    """
    if len(shape) < 2:
        return 4 * _numel(shape)
    return 4 * (_numel(shape[:-1]) + _numel(shape[:-2]) * shape[-1])


def adafactor_temp_bytes(num_params: Any, before: Any, *, width: int) -> Any:
    """Four fp32 tensors (the gradient, the weight, the square, the square plus epsilon), or two where both are fp32 already; and the last update.

    Source: transformers/optimization.py, ``Adafactor.step``: ``update = (grad**2) + group["eps"][0]``, while ``update`` is still that of the tensor
    before.

    Args:
        num_params: elements of a tensor.
        before: elements of the one stepped before it.
        width: bytes of a weight.

    >>> adafactor_temp_bytes(100, 50, width=2), adafactor_temp_bytes(100, 50, width=4)
    (1800, 1000)
    """
    return (16 if width < 4 else 8) * num_params + 4 * before


def lomo_temp_bytes(num_params: Any, *, width: int) -> Any:
    """fp32 copies of a gradient and of its weight; none where they are fp32.

    Source: lomo_optim/lomo.py, ``fuse_update`` (``grad_fp32``, ``p_fp32``; ``p.grad`` goes between).

    >>> lomo_temp_bytes(100, width=2), lomo_temp_bytes(100, width=4)
    (800, 0)
    """
    return 8 * num_params if width < 4 else 0


def adalomo_temp_bytes(num_params: Any, *, width: int) -> Any:
    """Beside the fp32 copy of the gradient the square and the square plus epsilon; then the update and the fp32 copy of the weight.

    Source: lomo_optim/adalomo.py, ``fuse_update`` (``update``).

    >>> adalomo_temp_bytes(100, width=2), adalomo_temp_bytes(100, width=4)
    (1200, 800)
    """
    return (12 if width < 4 else 8) * num_params


def _numel(shape: tuple[Any, ...]) -> Any:
    count: Any = 1
    for size in shape:
        count = count * size
    return count
