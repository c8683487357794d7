"""Optimizers whose states are as large as the weights, element by element."""

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


def ema_state_bytes(num_params: Any, *, states: int, width: int) -> Any:
    """So many running averages, each as large as the parameter.

    Source: torch/optim/rmsprop.py and adagrad.py, ``_init_group``; schedulefree/adamw_schedulefree.py, ``step`` (``z`` and ``exp_avg_sq``);
    optimi/stableadamw.py, ``_init_state``; bitsandbytes/optim/optimizer.py, ``init_state`` in 32 bits.

    >>> ema_state_bytes(1000, states=3, width=4)
    12000
    """
    return states * width * num_params


def kahan_bytes(num_params: Any, *, width: int) -> Any:
    """What is lost in rounding, kept in the parameter's dtype where that has 16 bits.

    Source: optimi/stableadamw.py, ``_init_state`` (``kahan_comp``).

    >>> kahan_bytes(1000, width=2), kahan_bytes(1000, width=4)
    (2000, 0)
    """
    return width * num_params if width < 4 else 0


def any_precision_temp_bytes(num_params: Any, *, width: int) -> Any:
    """Root and quotient of the variance of the largest tensor, in the variance's dtype.

    Source: torchdistx/optimizers/anyprecision_optimizer.py, ``step`` (``centered_variance``).

    >>> any_precision_temp_bytes(100, width=4)
    800
    """
    return 2 * width * num_params


def grok_temp_bytes(num_params: Any, before: Any, *, width: int) -> Any:
    """Three states of a tensor on the card, the amplified gradient and the root; or all but the root of the tensor before, and two of this one.

    States live on the host, and come to the card tensor by tensor.

    Source: grokadamw/grokadamw.py, ``_update_group``: states are ``zeros_like(p, device="cpu")``, moved by ``.to(p.device)`` and back.

    Args:
        num_params: elements of a tensor.
        before: elements of the one stepped before it, whose variables are still bound.

    >>> grok_temp_bytes(100, 0, width=2)
    1000
    >>> grok_temp_bytes(10, 100, width=2)
    840
    """
    own, moving = 5 * num_params + before, 4 * before + 2 * num_params
    return width * (own + (moving > own) * (moving - own))
