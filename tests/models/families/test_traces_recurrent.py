"""Recurrent models and those with two stacks against traced steps: one sequence and several, one chunk and several, checkpointing, autocast, adapters, prefill.

BART and its relatives were traced with transformers told that no token is padding, which it finds out by itself where tensors have values.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, errors, load_cases

TOLERANCE = 5e-4
"""Relative, at every instant; of models so small that an index vector is a part in ten thousand."""

LOOSE = {
    "falcon-mamba-prefill": 1e-3,
    "qwen3.5-moe-checkpointing": 1e-3,
    "lfm2-checkpointing": 1e-3,
    "lfm2-moe-checkpointing": 1e-3,
    "t5-eager-checkpointing": 8e-3,
    "t5-checkpointing": 1e-3,
}
"""Small models whose peak stands at a tensor that is not followed: statistics of a norm, a mask of one chunk, angles that checkpoints of layers without
attention hold, zeros that checkpointing makes a leaf of the graph and that stay to the end of the step."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("recurrent"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a two-thousandth at every instant."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > LOOSE.get(case.id, TOLERANCE)} == {}
