"""Traced steps with PEFT's further adapters (DoRA, the token table as a target, ranks by path) and with LOMO, which steps in backward."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, errors, load_cases

TOLERANCE = 1e-5


@pytest.mark.parametrize("case", load_cases("peft"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a hundred-thousandth."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}
