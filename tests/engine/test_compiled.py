"""What is said of torch.compile: nothing else is counted, and a bound is given."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.specs.run import Run


def run(**keys: Any) -> Estimate:
    """Llama 3.1 8B, compiled."""
    return estimate(Run.model_validate({"model": "llama-3.1-8b", "seq_len": 4096, **keys}))


def note(answer: Estimate) -> str:
    """What is said of it."""
    return next(text for text in answer.notes if text.startswith("torch_compile"))


def test_the_count_is_that_of_modules_as_they_are_written() -> None:
    """To the byte."""
    assert run(torch_compile=True).peak == run().peak
    assert not any(text.startswith("torch_compile") for text in run().notes)


def test_the_bound_is_what_fused_kernels_save() -> None:
    """The same layers as Megatron's: 17.02 GiB of 24.52 GiB."""
    assert "layers save 24.52 GiB for backward; fused by hand, as Megatron-core's, they would save 17.02 GiB" in note(run(torch_compile=True))


@pytest.mark.parametrize("keys", [{"model": "t5-3b"}, {"lora": {}}])
def test_without_such_kernels_only_the_upper_bound_is_given(keys: dict[str, Any]) -> None:
    """Megatron's modules have no such layers, or adapters of another kind."""
    assert note(run(torch_compile=True, **keys)).endswith("which is an upper bound")


def test_checkpointed_layers_save_the_same() -> None:
    """Their inputs."""
    assert "fewer temporaries" in note(run(torch_compile=True, recompute="full"))
