"""Mixtures of experts and latent attention against traced steps: small ones in every way they run, and some of full size.

Those of ``deepseek`` and ``minicpm`` were traced with modules written after the code that comes with those models, in transformers' Llama.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, errors, load_cases

TOLERANCE = 1e-5
"""Relative, at every instant."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("moe"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a hundred-thousandth at every instant."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}
