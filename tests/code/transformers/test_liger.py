"""Liger's kernels: what a layer saves, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.specs.run import Run
from tests.traced import Case, errors, load_cases

LAYERS, HIDDEN, KV, INNER, HEADS, TOKENS = 32, 4096, 1024, 14336, 32, 2048


def run(**keys: Any) -> Estimate:
    """An answer for Llama 3.1 8B."""
    return estimate(Run.model_validate({"model": "llama-3.1-8b", "seq_len": TOKENS, **keys}))


def test_a_layer_saves_what_its_kernels_need() -> None:
    """Per token: norms their inputs, outputs and a number; attention q, k, v, output, log-sum-exp; the gate's kernel three of the inner width."""
    terms = run(liger={}).instant("forward_end").terms
    found = sum(t.bytes for t in terms if t.path.startswith("activations/layers/") or t.path == "activations/hidden_states")
    each = 2 * (2 * 2 * HIDDEN + 4) + 2 * (2 * HIDDEN + 2 * KV) + 4 * HEADS + 3 * 2 * INNER
    assert found == pytest.approx(TOKENS * (LAYERS * each + 2 * HIDDEN), rel=1e-3)


def test_backward_needs_less_than_the_written_out_modules() -> None:
    """Gradients take the place of what is no longer needed."""
    assert run(liger={}).instant("backward_peak").allocated_bytes < run().instant("backward_peak").allocated_bytes


def test_norms_and_rotary_positions_alone() -> None:
    """liger_kernel_config without swiglu, and what fms-acceleration fuses: gates are as they are written out."""
    saved = [{t.path: t.bytes for t in answer.instant("forward_end").terms} for answer in (run(), run(liger={"swiglu": False}), run(liger={}))]
    gates, norms = "activations/layers/mlp/silu", "activations/layers/input_layernorm/input in fp32"
    assert [gates in terms for terms in saved] == [True, True, False]
    assert [norms in terms for terms in saved] == [True, False, False]


@pytest.mark.parametrize("case", load_cases("liger"), ids=lambda case: case.id)
def test_kernels_take_what_theirs_take(case: Case, tmp_path: Path) -> None:
    """Steps of models with Liger-Kernel 0.8.5's own functions, of which only the launch of a kernel was left out; with images, labels are a batch's own."""
    assert errors(case, case.estimate(tmp_path)) == pytest.approx(dict.fromkeys(case.instants, 0), abs=3e-4 if "images" in case.run else 1e-6)
