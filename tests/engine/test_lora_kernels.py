"""Kernels for adapters: what they need."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.resolve import resolve
from memcalc.engine.settings import settings_of
from memcalc.errors import InputError
from memcalc.specs.read import read_run


def test_kernels_that_find_nothing_are_listed() -> None:
    """Where one of a network's layers has no adapter, it stays as it is."""
    lora = {"r": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "up_proj"], "kernels": ["mlp", "qkv", "o"]}
    found = resolve(read_run("llama-3.2-1b", seq_len=64, lora=lora)).ignored
    assert [line.split(":")[0] for line in found] == ["lora.kernels mlp", "lora.kernels o"]


def test_stage_3_has_peft_s_modules() -> None:
    job = resolve(read_run("llama-3.2-1b", seq_len=64, zero=3, dp=2, engine="deepspeed", lora={"r": 8, "kernels": ["mlp"]}))
    assert any(line.startswith("lora.kernels: stage 3 gathers") for line in job.ignored)
    assert settings_of(job).lora_kernels == ()


@pytest.mark.parametrize(
    ("keys", "said"), [({"lora": {"kernels": ["mpl"]}}, "did you mean mlp"), ({"lora": {"kernels": ["o"]}, "code": "megatron"}, "for transformers' modules")]
)
def test_what_there_is_not_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(read_run("llama-3.2-1b", seq_len=64, **keys))
