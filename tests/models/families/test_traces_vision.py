"""Models that see images against traced steps: with images and without, eager and fused, checkpointing, autocast, prefill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, errors, load_cases

TOLERANCE = 5e-5
"""Relative, at every instant."""

LOOSE = {
    "qwen3-vl": 2e-3,
    "qwen3-vl-eager": 2e-3,
    "qwen3-vl-checkpointing": 2e-3,
    "qwen3-vl-autocast": 2e-3,
    "qwen2.5-vl-prefill": 5e-3,
    "qwen3-vl-prefill": 8e-3,
    "glm4v-prefill": 3e-3,
    "gemma3-prefill": 2e-4,
    "gemma4": 3e-4,
    "gemma4-no-images": 2e-4,
    "gemma4-eager": 3e-4,
    "gemma4-autocast": 3e-4,
    "gemma4-prefill": 8e-3,
    "gemma4-prefill-no-images": 1e-3,
    "gemma4-text-checkpointing": 2e-3,
    "gemma4-e2b-ckpt": 1e-3,
    "gemma3n-ckpt": 1e-3,
    "gemma3n-prefill": 2e-4,
    "gemma4-e2b-whole-prefill": 5e-4,
    "llama4": 5e-4,
    "llama4-eager": 5e-4,
    "llama4-checkpointing": 5e-4,
    "llama4-autocast": 4e-3,
    "llama4-prefill": 5e-3,
    "paligemma-autocast": 2e-3,
    "paligemma-prefill": 7e-3,
    "internvl-qk-norm-prefill": 5e-3,
    "idefics3-prefill": 2e-4,
}
"""Small models whose peak stands at a tensor that is not followed: tokens of middle layers in the tower's output, the angles of the text, which
the code makes behind the tower and memcalc before it, places of patches in the batch, copies of tables while they are conjugated."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("vision"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a twenty-thousandth at every instant."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > LOOSE.get(case.id, TOLERANCE)} == {}
