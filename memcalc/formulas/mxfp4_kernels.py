"""How vLLM's kernels hold experts in MXFP4: sizes are padded, and on Hopper the scales as they were loaded stay beside those that are swizzled."""

from __future__ import annotations

from typing import Any, NamedTuple

from memcalc.formulas.quantization import mxfp4_bytes
from memcalc.units import ceil_div

BLOCK = 32
"""Values that share a scale."""


class Kernel(NamedTuple):
    """One of the kernels.

    Attributes:
        name: vLLM's.
        hidden, intermediate: hidden_size, and intermediate_size on a rank, are padded to a multiple of these.
        swizzle: scales stand a second time, with their rows padded to a multiple of this; 0: once.
        bias_width: bytes of a value of the biases.
    """

    name: str
    hidden: int
    intermediate: int
    swizzle: int
    bias_width: int


KERNELS: dict[str, Kernel] = {
    "hopper": Kernel("triton", 1, 64, 256, 4),
    "blackwell": Kernel("flashinfer", 256, 256, 0, 4),
    "other": Kernel("marlin", 256, 128, 0, 2),
}
"""By generation of the card.

Source: vllm/model_executor/layers/quantization/mxfp4.py, ``create_weights`` and ``process_weights_after_loading``;
triton_kernels/tensor_details/layout_details/hopper_scale.py, whose rows are padded to 2 * 8 warps * 2 * 8.
"""


def experts_bytes(*, num_experts: Any, hidden_size: int, intermediate_size: Any, kernel: Kernel, biased: bool) -> Any:
    """Gate, up and down of so many experts, their scales and biases, as a kernel holds them.

    Source: that of `KERNELS`. With Marlin vLLM prints 13.7164 GiB for gpt-oss-20b, of which these are:

    Args:
        num_experts: on a rank.
        hidden_size: of the model.
        intermediate_size: of an expert, on a rank.
        kernel: whose layout.
        biased: whether both projections have biases.

    >>> round(24 * experts_bytes(num_experts=32, hidden_size=2880, intermediate_size=2880, kernel=KERNELS["other"], biased=True) / 2**30, 2)
    10.32
    """
    hidden, inner = _padded(hidden_size, kernel.hidden), _padded(intermediate_size, kernel.intermediate)
    each = mxfp4_bytes(2 * inner * hidden) + mxfp4_bytes(hidden * inner)
    if kernel.swizzle:
        each += _padded(2 * inner, kernel.swizzle) * ceil_div(hidden, BLOCK) + _padded(hidden, kernel.swizzle) * ceil_div(inner, BLOCK)
    return num_experts * (each + (2 * inner + hidden) * kernel.bias_width * biased)


def _padded(size: Any, multiple: int) -> Any:
    return ceil_div(size, multiple) * multiple
