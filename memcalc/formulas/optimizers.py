"""States of the optimizers, and what a step needs on top."""

from __future__ import annotations

from typing import Any

STEP_COUNTER_BYTES = 4
"""torch.optim.AdamW keeps one fp32 step counter per tensor (torch/optim/adamw.py, _init_group)."""


def adamw_state_bytes(num_params: Any, *, width: int) -> Any:
    """Both moments, each in the dtype of the parameter.

    Source: torch/optim/adamw.py, ``_init_group`` (exp_avg and exp_avg_sq are ``zeros_like(p)``).

    Args:
        num_params: parameters that take a gradient on this rank.
        width: bytes of one parameter.

    >>> adamw_state_bytes(1000, width=2)
    4000
    """
    return 2 * width * num_params


def adamw_foreach_temp_bytes(num_params: Any, *, width: int) -> Any:
    """The list of square roots of the second moment, all tensors at once.

    Source: torch/optim/adamw.py, ``_multi_tensor_adamw``: ``torch._foreach_sqrt(device_exp_avg_sqs)``.

    >>> adamw_foreach_temp_bytes(1000, width=2)
    2000
    """
    return width * num_params


def adamw_single_temp_bytes(largest: Any, *, width: int) -> Any:
    """Square root and quotient of the largest tensor, when tensors step one by one.

    Source: torch/optim/adamw.py, ``_single_tensor_adamw``: ``(exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)``.

    >>> adamw_single_temp_bytes(100, width=2)
    400
    """
    return 2 * width * largest


def sgd_state_bytes(num_params: Any, *, width: int, momentum: bool) -> Any:
    """The momentum buffer, where there is momentum.

    Source: torch/optim/sgd.py, ``_multi_tensor_sgd``.

    >>> sgd_state_bytes(1000, width=2, momentum=False)
    0
    """
    return width * num_params if momentum else 0
