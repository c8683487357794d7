"""Liger's kernels: what a layer saves, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run

LAYERS, HIDDEN, KV, INNER, HEADS, TOKENS = 32, 4096, 1024, 14336, 32, 2048


def run(**keys: Any) -> Estimate:
    """An answer for Llama 3.1 8B."""
    return estimate(Run.model_validate({"model": "llama-3.1-8b", "seq_len": TOKENS, **keys}))


def test_a_layer_saves_what_its_kernels_need() -> None:
    """Per token: norms their inputs, outputs and a number; attention q, k, v, output, log-sum-exp; the gate's kernel three of the inner width."""
    terms = run(liger=True).instant("forward_end").terms
    found = sum(t.bytes for t in terms if t.path.startswith("activations/layers/") or t.path == "activations/hidden_states")
    each = 2 * (2 * 2 * HIDDEN + 4) + 2 * (2 * HIDDEN + 2 * KV) + 4 * HEADS + 3 * 2 * INNER
    assert found == pytest.approx(TOKENS * (LAYERS * each + 2 * HIDDEN), rel=1e-3)


def test_its_fused_loss_comes_with_it_unless_another_is_named() -> None:
    """As transformers' use_liger_kernel has it."""
    assert run(liger=True).asked["loss"] == "fused_linear"
    assert run(liger=True, loss="cross_entropy").asked["loss"] == "cross_entropy"


def test_backward_needs_less_than_the_written_out_modules() -> None:
    """Gradients take the place of what is no longer needed."""
    assert run(liger=True).instant("backward_peak").allocated_bytes < run().instant("backward_peak").allocated_bytes


def test_models_that_are_not_known_with_it_are_refused() -> None:
    """And inference."""
    with pytest.raises(InputError, match="liger: gpt2 with Liger's kernels is not known"):
        run(model="gpt2", seq_len=64, liger=True)
    with pytest.raises(InputError, match="liger: Liger's kernels are for training"):
        run(liger=True, task="inference")


def test_norms_and_rotary_positions_alone() -> None:
    """liger_kernel_config without swiglu, and what fms-acceleration fuses: gates are as they are written out."""
    saved = [{t.path: t.bytes for t in answer.instant("forward_end").terms} for answer in (run(), run(liger=True, liger_swiglu=False), run(liger=True))]
    gates, norms = "activations/layers/mlp/silu", "activations/layers/input_layernorm/input in fp32"
    assert [gates in terms for terms in saved] == [True, True, False]
    assert [norms in terms for terms in saved] == [True, False, False]
