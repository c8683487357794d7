"""What vLLM makes of weights once they are read."""

from __future__ import annotations

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.serving.loaded import generation
from memcalc.specs.gpus import find_gpu
from memcalc.specs.read import read_run


def terms(model: str, **keys: object) -> dict[str, int]:
    answer = estimate(read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h100-80g", **keys}))
    return {term.path: term.bytes for term in answer.instant("load").terms}


def test_one_table_of_angles_for_all_layers() -> None:
    """131,072 positions of Llama-3.1-8B, 64 cosines and 64 sines each."""
    assert terms("llama-3.1-8b")["weights/rotary tables"] == 131_072 * 128 * 2


def test_layers_with_windows_may_have_a_table_of_their_own() -> None:
    assert terms("gemma-3-1b")["weights/rotary tables"] == 2 * 32_768 * 256 * 2


def test_gpt_oss_with_marlin_is_what_its_log_says() -> None:
    """On an Ada card: "Model loading took 13.7164 GiB" (tables of angles are fp32 there)."""
    assert sum(terms("gpt-oss-20b", gpu="l40s-48g").values()) / 2**30 == pytest.approx(13.7164, rel=0.004)


def test_experts_are_padded_on_each_rank() -> None:
    """A slice of 720 of 2,880 becomes 768 with Triton's kernels, and 768 with Marlin's, which pad hidden_size, too."""
    hopper, ada = (terms("gpt-oss-20b", tp=4, gpus=4, gpu=gpu) for gpu in ("h100-80g", "l40s-48g"))
    assert 0 < hopper["weights/layout of triton experts"] < ada["weights/layout of marlin experts"]


def test_models_without_such_experts_have_no_layout() -> None:
    assert not [path for path in terms("qwen3-30b-a3b") if "layout" in path]


@pytest.mark.parametrize(
    ("card", "found"), [("h200-141g", "hopper"), ("b200-180g", "blackwell"), ("a100-80g", "other"), ("79.18GiB", "hopper"), ("24GiB", "other")]
)
def test_generations(card: str, found: str) -> None:
    assert generation(find_gpu(card)) == found
