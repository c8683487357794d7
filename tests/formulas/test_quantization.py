"""Stored bytes of quantised weights: laws over random shapes, and what checkpoints hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.formulas import quantization as formulas

sizes = st.integers(1, 5000)


def test_nf4_takes_what_the_paper_says() -> None:
    """4.5 bits a parameter, 4.127 with double quantisation (Dettmers et al. 2023, section 3)."""
    numel = 4096 * 11008
    assert formulas.nf4_bytes(numel) * 8 / numel == pytest.approx(4.5, abs=1e-4)
    assert formulas.nf4_bytes(numel, double_quant=True) * 8 / numel == pytest.approx(4.127, abs=1e-3)


@given(rows=sizes, columns=sizes)
def test_double_quantisation_never_takes_more_of_a_large_weight(rows: int, columns: int) -> None:
    """Its own table and mean stand beside it: of a small weight they are more than it saves."""
    numel = rows * columns
    saved = formulas.nf4_bytes(numel) - formulas.nf4_bytes(numel, double_quant=True)
    assert saved >= 0 or numel < 64 * 400


def test_gptq_packs_as_its_kernels_do() -> None:
    """qweight (in/8, out) int32, qzeros (groups, out/8) int32, scales (groups, out) fp16, g_idx (in,) int32."""
    assert formulas.gptq_bytes(11008, 4096) == 4 * (4096 // 8) * 11008 + 4 * 32 * (11008 // 8) + 2 * 32 * 11008 + 4 * 4096
    assert formulas.gptq_bytes(11008, 4096, group=-1) == 4 * (4096 // 8) * 11008 + 4 * (11008 // 8) + 2 * 11008 + 4 * 4096


def test_awq_packs_along_the_outputs() -> None:
    """qweight (in, out/8) int32, qzeros (groups, out/8) int32, scales (groups, out) fp16."""
    assert formulas.awq_bytes(11008, 4096) == 4 * 4096 * (11008 // 8) + 4 * 32 * (11008 // 8) + 2 * 32 * 11008


@given(rows=sizes, columns=sizes, bits=st.sampled_from((2, 4, 8)))
def test_packed_values_are_never_less_than_their_bits(rows: int, columns: int, bits: int) -> None:
    for found in (
        formulas.gptq_bytes(rows, columns, bits=bits),
        formulas.awq_bytes(rows, columns, bits=bits),
        formulas.packed_bytes(rows, columns, bits=bits, group=128),
        formulas.affine_bytes(rows, columns, bits=bits, group=64),
    ):
        assert found * 8 > rows * columns * bits


@given(rows=sizes, columns=sizes)
def test_one_byte_formats_add_their_scales_alone(rows: int, columns: int) -> None:
    assert formulas.int8_bytes(rows, columns) == rows * columns + 4 * rows
    assert formulas.scaled_bytes(rows, columns, scales=rows) == rows * columns + 4 * rows
    assert formulas.fp8_block_bytes(rows, columns, block=(1, columns)) == rows * columns + 4 * rows
    assert formulas.fp8_block_bytes(rows, columns, block=(rows, columns)) == rows * columns + 4


@given(numel=st.integers(1, 10**9))
def test_blocks_of_four_bits(numel: int) -> None:
    """MXFP4 has an 8-bit exponent for 32 values, NVFP4 an 8-bit scale for 16."""
    assert formulas.mxfp4_bytes(numel) == -(-numel // 2) + -(-numel // 32)
    assert formulas.nvfp4_bytes(numel) == -(-numel // 2) + -(-numel // 16) + 8


def test_arrays_equal_single_sizes() -> None:
    rows, columns = np.array([1, 100, 4096]), np.array([7, 128, 11008])
    for formula in (formulas.int8_bytes, formulas.gptq_bytes, formulas.awq_bytes, formulas.fp8_block_bytes):
        assert formula(rows, columns).tolist() == [formula(int(r), int(c)) for r, c in zip(rows, columns, strict=True)]
    for formula in (formulas.nf4_bytes, formulas.mxfp4_bytes, formulas.nvfp4_bytes):
        assert formula(rows * columns).tolist() == [formula(int(r * c)) for r, c in zip(rows, columns, strict=True)]
