"""ggml's types, against the sizes of files that everybody has."""

from __future__ import annotations

import pytest

from memcalc.errors import UnknownNameError
from memcalc.formulas import ggml


@pytest.mark.parametrize(("name", "bits"), [("q4_k", 4.5), ("q5_k", 5.5), ("q6_k", 6.5625), ("q8_0", 8.5), ("q2_k", 2.625), ("iq4_xs", 4.25), ("mxfp4", 4.25)])
def test_bits_per_weight_with_scales(name: str, bits: float) -> None:
    assert ggml.TYPES[name].block_bytes * 8 / ggml.TYPES[name].block == bits


@pytest.mark.parametrize(("columns", "kind", "size"), [(896, "q4_k", 28 * 22), (896, "q6_k", 28 * 34), (40, "q4_k", 80), (512, "q4_0", 16 * 18)])
def test_rows_that_no_block_divides_are_stored_otherwise(columns: int, kind: str, size: int) -> None:
    assert ggml.row_bytes(columns, kind) == size


def test_windows_are_buffers_of_window_and_micro_batch() -> None:
    assert ggml.cells(128_000, window=1024, ubatch=512) == 1536
    assert ggml.cells(1000, window=4096, ubatch=512) == 1024


def test_an_unknown_mixture_is_named() -> None:
    with pytest.raises(UnknownNameError, match="q4_k_m"):
        ggml.mixture("q4_k_l")
