"""Dense text models against traced steps, of small ones and some of full size: sdpa and eager, checkpointing, autocast, prefill, and each option."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, errors, load_cases

TOLERANCE = 1e-4
"""Relative, at every instant; of models so small that an index vector is a part in fifty thousand."""

LOOSE = {"codegen-prefill": 0.006}
"""Where the peak stands inside attention whose code keeps the fused projection in a variable, which is not followed."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("dense"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a ten-thousandth at every instant."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > LOOSE.get(case.id, TOLERANCE)} == {}
