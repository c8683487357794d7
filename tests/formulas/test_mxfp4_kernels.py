"""Layouts of experts in MXFP4."""

from __future__ import annotations

import pytest

from memcalc.formulas.mxfp4_kernels import KERNELS, experts_bytes
from memcalc.formulas.quantization import mxfp4_bytes


def test_sizes_that_no_kernel_pads_take_what_is_stored() -> None:
    """But for Hopper's second scales."""
    stored = mxfp4_bytes(3 * 1024 * 1024)
    for name, more in (("other", 0), ("blackwell", 0), ("hopper", 3 * 1024 * 1024 // 32)):
        assert experts_bytes(num_experts=1, hidden_size=1024, intermediate_size=1024, kernel=KERNELS[name], biased=False) == stored + more


@pytest.mark.parametrize(("name", "hidden", "inner"), [("hopper", 2880, 2880), ("blackwell", 3072, 3072), ("other", 3072, 2944)])
def test_gpt_oss_sizes(name: str, hidden: int, inner: int) -> None:
    kernel = KERNELS[name]._replace(swizzle=0)
    found = experts_bytes(num_experts=32, hidden_size=2880, intermediate_size=2880, kernel=kernel, biased=True)
    assert found == 32 * (mxfp4_bytes(3 * hidden * inner) + (2 * inner + hidden) * kernel.bias_width)
