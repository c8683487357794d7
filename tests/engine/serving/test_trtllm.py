"""TensorRT-LLM against sequences that were served: aiconfigurator's test of cache capacity on H100 (80 GiB), bf16 caches, 0.8 of free memory.

The constants are aiconfigurator's own, so this checks the rule and the counts, it predicts nothing new.
"""

from __future__ import annotations

import pytest

from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run

LENGTHS = ((2048, 2048), (2048, 4096), (4096, 2048), (4096, 4096))
SERVED = {
    ("qwen3-32b", "fp8", 1): (27, 19, 19, 14),
    ("qwen3-32b", "fp8", 2): (75, 53, 53, 41),
    ("qwen3-32b", "fp8", 4): (169, 121, 120, 93),
    ("llama-3.1-8b", None, 1): (78, 56, 55, 43),
    ("llama-3.1-8b", None, 2): (173, 124, 123, 96),
    ("llama-3.1-8b", None, 4): (363, 259, 258, 201),
}
ROWS = [(key, lengths, served) for key, row in SERVED.items() for lengths, served in zip(LENGTHS, row, strict=True)]


@pytest.mark.parametrize(("engine", "lengths", "served"), ROWS)
def test_sequences_at_once(engine: tuple[str, str | None, int], lengths: tuple[int, int], served: int) -> None:
    """Within one sequence or 2 %, whichever is more: the band of aiconfigurator's own test."""
    model, quantization, tp = engine
    keys = {"max_model_len": sum(lengths) + 1000, "max_num_batched_tokens": 2 * lengths[0], "free_gpu_memory_fraction": 0.8, "quantization": quantization}
    run = read_run(model, task="inference", code="trtllm", gpu="80GiB", gpus=tp, tp=tp, **keys)
    serving = estimate(run).serving
    assert serving is not None
    assert abs(int(serving.max_concurrency) - served) <= max(1, 0.02 * served)
