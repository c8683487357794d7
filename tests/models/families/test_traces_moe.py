"""Mixtures of experts and latent attention against traced steps: small ones in every way they run, and some of full size.

Those of ``deepseek`` and ``minicpm`` were traced with modules written after the code that comes with those models, in transformers' Llama.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memcalc.engine.estimate import estimate
from memcalc.specs.run import Run
from memcalc.whatif.sweep import sweep
from tests.traced import Case, errors, load_cases

TOLERANCE = 1e-5
"""Relative, at every instant."""

CASES = load_cases("moe")

ONE_OF_EACH = {(case.config["model_type"], case.run["task"]): case for case in CASES}.values()


@pytest.mark.accuracy
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal; bytes agree within a hundred-thousandth at every instant."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda c: c.id)
def test_arrays_equal_single_runs(case: Case, tmp_path: Path) -> None:
    """Also where blocks of a sequence run in a loop, or experts do."""
    tmp_path.joinpath("config.json").write_text(json.dumps(case.config))

    def make(values: dict[str, int]) -> Run:
        return Run.model_validate({"model": str(tmp_path), **case.run, **values})

    for points in sweep(make, {"micro_batch": [1, 3], "seq_len": [1, 130, 700]}):
        sizes = zip(points.micro_batch.tolist(), points.seq_len.tolist(), strict=True)
        alone = [estimate(make({"micro_batch": batch, "seq_len": length})).peak.allocated_bytes for batch, length in sizes]
        assert points.peak_bytes.tolist() == alone
