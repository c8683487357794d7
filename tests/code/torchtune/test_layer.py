"""torchtune's models against traced steps of its own code, as its single-device recipes run it (commit bd2a0fc, torch 2.13 on a CPU)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.code.settings import Settings
from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run
from tests.traced import Case, errors, load_cases

TOLERANCE = 2e-5
PACKED = 3e-3
"""Of a quantised base: memcalc's scheme has the tables of bitsandbytes, a KiB for each weight, where torchao's are 34 bytes."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("torchtune"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a mode watches, torch sums gradients out of place."""
    monkeypatch.setattr(Settings, "sums_in_place", False)
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    allowed = PACKED if "quantization" in case.run else TOLERANCE
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > allowed} == {}


def test_a_layer_keeps_keys_and_values_as_often_as_there_are_queries() -> None:
    """Llama 3.1 8B on 4096 tokens: 4 queries share a key; both norms and the fp32 copies of their inputs as in transformers' modules."""
    terms = {code: estimate(read_run("llama-3.1-8b", code=code, seq_len=4096)).instant("forward_end").terms for code in ("torchtune", "transformers")}
    kept = {code: sum(t.bytes for t in found if t.path.startswith("activations/layers/")) // 32 for code, found in terms.items()}
    assert kept["torchtune"] - kept["transformers"] == 4096 * 2 * 2 * (4096 - 1024)


def test_a_compiled_layer_keeps_what_its_kernels_read() -> None:
    """As the partitioner decides of torchtune's layer: eight tensors of hidden size, three of the network's, a root for each row of two norms, log-sum-exp."""
    run = {"code": "torchtune", "torch_compile": True, "micro_batch": 2, "seq_len": 4096, "loss": "chunked_output"}
    terms = estimate(read_run("llama-2-7b", **run)).instant("forward_end").terms
    kept = sum(t.bytes for t in terms if t.path.startswith(("activations/layers/", "activations/hidden_states")))
    assert kept == 8192 * (32 * (8 * 2 * 4096 + 3 * 2 * 11008 + 2 * 4 + 32 * 4) + 2 * 4096)


@pytest.mark.parametrize(
    ("measured", "keys"),
    [
        (60.0, {"packing": True}),
        (42.9, {"packing": True, "torch_compile": True, "loss": "chunked_output"}),
    ],
)
def test_llama_3b_on_a_card(measured: float, keys: dict[str, Any]) -> None:
    """torchtune's README, GiB active at the peak of two sequences of 4096 tokens."""
    peak = estimate(read_run("llama-3.2-3b", code="torchtune", micro_batch=2, seq_len=4096, **keys)).most_loaded.peak.allocated_bytes
    assert abs(peak / 2**30 / measured - 1) < 0.02
