"""What Transformer Engine keeps beside weights and activations for products in fp8."""

from __future__ import annotations

from typing import Any

HISTORY = 1024
"""Steps whose largest values a delayed scaling recipe remembers (transformer_engine/common/recipe, ``DelayedScaling.amax_history_len``)."""
TENSORS = 5
"""Of each product: input, weight and output in forward, the gradients of output and input in backward."""


def weight_copy_bytes(numel: Any) -> Any:
    """A weight in fp8 by rows, for the product, and transposed, for the gradient of its input.

    Source: transformer_engine/pytorch/module/linear.py, ``_Linear.forward`` (``weight_quantizer.set_usage``).

    Args:
        numel: elements.

    >>> weight_copy_bytes(4096 * 4096)
    33554432
    """
    return 2 * numel


def amax_bytes(products: Any) -> Any:
    """Largest values of the last steps, in fp32, for all tensors of some products.

    Source: transformer_engine/pytorch/quantization.py, ``DelayedScalingRecipeState`` (``amax_history``).

    Args:
        products: how many.

    >>> amax_bytes(1)
    20480
    """
    return products * TENSORS * HISTORY * 4
