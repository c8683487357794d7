"""Adapters and frozen layers in one function."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run
from tests.traced import Case, errors, load_cases


@pytest.mark.parametrize("case", load_cases("lora_kernels"), ids=lambda case: case.id)
def test_functions_take_what_axolotls_take(case: Case, tmp_path: Path) -> None:
    """Steps of Llama with axolotl 0.19's own functions, of which only the launch of the gate's kernel was left out."""
    assert errors(case, case.estimate(tmp_path)) == pytest.approx(dict.fromkeys(case.instants, 0), abs=1e-6)


def test_on_a_quantised_base_with_dropout_they_save_memory() -> None:
    """The weight is brought back once in forward and once in backward; the network keeps three tensors of its inner width less."""
    lora = {"r": 16, "dropout": 0.05}
    plain, fused = (
        estimate(read_run("llama-3.1-8b", seq_len=1024, quantization="nf4-dq", lora=lora | more)) for more in ({}, {"kernels": ["mlp", "qkv", "o"]})
    )
    saved = plain.instant("forward_end").allocated_bytes - fused.instant("forward_end").allocated_bytes
    assert saved > 32 * 1024 * 3 * 14336 * 2
    assert fused.instant("backward_peak").allocated_bytes < plain.instant("backward_peak").allocated_bytes
