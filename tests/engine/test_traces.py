"""Llama-shaped models against traced steps: one card and tensor parallelism, sdpa and eager, checkpointing, autocast, adapters, prefill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, errors, load_cases

TOLERANCE = 1e-5
"""Relative, at every instant; what is left are scalars and index vectors of a few kilobytes."""


@pytest.mark.parametrize("case", [*load_cases("llama"), *load_cases("lora"), *load_cases("prefill")], ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a hundred-thousandth at every instant."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}
