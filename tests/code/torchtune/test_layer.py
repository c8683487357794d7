"""torchtune's models against traced steps of its own code, as its single-device recipes run it (commit bd2a0fc, torch 2.13 on a CPU)."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run
from tests.traced import Case, errors, load_cases

TOLERANCE = 2e-5
PACKED = 3e-3
"""Of a quantised base: memcalc's scheme has the tables of bitsandbytes, a KiB for each weight, where torchao's are 34 bytes."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("torchtune"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    allowed = PACKED if "quantization" in case.run else TOLERANCE
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > allowed} == {}


def test_a_layer_keeps_keys_and_values_as_often_as_there_are_queries() -> None:
    """Llama 3.1 8B on 4096 tokens: 4 queries share a key; both norms and the fp32 copies of their inputs as in transformers' modules."""
    terms = {code: estimate(read_run("llama-3.1-8b", code=code, seq_len=4096)).instant("forward_end").terms for code in ("torchtune", "transformers")}
    kept = {code: sum(t.bytes for t in found if t.path.startswith("activations/layers/")) // 32 for code, found in terms.items()}
    assert kept["torchtune"] - kept["transformers"] == 4096 * 2 * 2 * (4096 - 1024)
