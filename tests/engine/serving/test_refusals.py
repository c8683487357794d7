"""What an engine says when it does not start is what `memcalc diagnose` reads in its log."""

from __future__ import annotations

from typing import Any

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.specs.read import read_run
from memcalc.whatif.diagnose.wordings import sglang, vllm


def serve(model: str, **keys: Any) -> Estimate:
    return estimate(read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h100-80g", **keys}))


def refusal(model: str, **keys: Any) -> str:
    found = serve(model, **keys).verdict
    assert found is not None
    return found.refusal


def test_one_sequence_does_not_fit() -> None:
    found = vllm.parse(refusal("llama-3-70b", tp=2, gpus=2, num_gpu_blocks_override=378, max_model_len=8192))
    assert found is not None
    assert found.tokens == (8192, 6048)


def test_nothing_is_left() -> None:
    assert vllm.parse(refusal("llama-3.1-70b")) is not None
    assert sglang.parse(refusal("llama-3.1-70b", code="sglang")) is not None


def test_the_share_is_not_free() -> None:
    found = vllm.parse(refusal("llama-3.2-1b", gpu_memory_utilization=1.0))
    assert found is not None
    assert found.free is not None
    assert found.free.text == "78.63 GiB"


def test_sglang_starts_and_turns_long_sequences_away() -> None:
    answer = serve("llama-3.1-8b", code="sglang", gpu="24GiB", mem_fraction_static=0.9)
    assert answer.verdict is not None
    assert answer.verdict.fits
    assert any("turns away" in note for note in answer.notes)


def test_trtllm_says_the_longest() -> None:
    assert "the longest that fits is" in refusal("llama-3.1-8b", code="trtllm", gpu="24GiB")
