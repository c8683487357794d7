"""FSDP1 and FSDP2 against traced steps: shard sizes that do not divide, dtypes of weights and of reductions, prefetch, accumulation, replicas, checkpoints.

The large cases are Llama 3.1 8B on 8 and 32 cards; the small ones make weights, gathers and reductions outweigh the activations.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, errors, load_cases

TOLERANCE = {"start": 3e-4, "forward_peak": 1e-4, "forward_end": 1e-4, "backward_peak": 1e-4, "optimizer_step": 1e-4}
"""Relative. At the start the FSDP1 traces still hold the last batch's token ids; what else is left are scalars and index vectors."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("fsdp"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a ten-thousandth at every instant."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE[name]} == {}


@pytest.mark.parametrize("case", load_cases("fsdp"), ids=lambda c: c.id)
def test_no_term_is_negative(case: Case, tmp_path: Path) -> None:
    """What is freed was there: by name, not only in sum (the loss's own gradient of 4 bytes aside)."""
    answer = case.estimate(tmp_path)
    assert [(i.name, t.path) for i in answer.most_loaded.instants for t in i.terms if t.bytes < -4] == []
