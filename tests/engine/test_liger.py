"""Liger's kernels: which of them a run has."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.liger import kernels_of
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.read import read_run


def job(model: str = "llama-3.2-1b", **keys: Any) -> Job:
    """A job that trains."""
    return resolve(read_run(model, seq_len=64, **keys))


def test_its_fused_loss_comes_with_it_unless_another_is_named() -> None:
    """As transformers' use_liger_kernel has it."""
    assert job(liger=True).run.loss == "fused_linear"
    assert job(liger=True, loss="cross_entropy").run.loss == "cross_entropy"
    assert job(liger={"fused_linear_cross_entropy": False}).run.loss == "cross_entropy"


def test_kernels_are_those_of_the_model_type_without_what_is_switched_off() -> None:
    made = job(liger={"rope": False, "cross_entropy": True, "fused_linear_cross_entropy": False})
    kernels = kernels_of(made.run, made.model)
    assert (kernels.rope, kernels.rms_norm, kernels.mlp, kernels.cross_entropy) == (False, True, True, True)


def test_what_liger_has_no_kernels_for_runs_as_it_is() -> None:
    """As Liger says itself, and goes on."""
    assert [line.split(":")[0] for line in job("gpt2", liger=True).ignored] == ["liger"]
    assert job("gpt2", liger=True).run.loss == "cross_entropy"
    assert [line.split(":")[0] for line in job(liger={"geglu": True, "relu_squared": True}).ignored] == ["liger.relu_squared"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"liger": True, "task": "inference"}, "for training"),
        ({"liger": True, "task": "inference", "code": "vllm"}, "vllm serves, and has no such knob"),
        ({"liger": {"cross_entropy": True}}, "one of cross_entropy and fused_linear_cross_entropy"),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(**keys)
