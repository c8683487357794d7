"""Logits of some tokens alone: traced steps with ``logits_to_keep``, and what does not go together with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run
from tests.traced import Case, errors, load_cases

TOLERANCE = 1e-6


@pytest.mark.parametrize("case", load_cases("kept_logits"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


def peak(**keys: Any) -> int:
    """Of Llama 3.1 8B on a long sequence."""
    return int(estimate(Run.model_validate({"model": "llama-3.1-8b", "seq_len": 8192, **keys})).most_loaded.peak.allocated_bytes)


def test_a_prompt_has_logits_of_its_last_token_unless_all_are_asked_for() -> None:
    """8192 * 128256 numbers of 2 bytes more, less what a layer held instead: the peak moves to the head."""
    last, everything = peak(task="inference"), peak(task="inference", logits_to_keep=0)
    assert last == peak(task="inference", logits_to_keep=1)
    assert 0 < everything - last <= 8192 * 128256 * 2


def test_training_has_logits_of_all_tokens_by_default() -> None:
    assert peak(logits_to_keep=100) < peak() == peak(logits_to_keep=0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "bert-base-uncased", "seq_len": 128}, "transformers' bert has no such argument"),
        ({"loss": "fused_linear"}, "labels of all tokens"),
        ({"code": "megatron"}, "argument of transformers' modules"),
        ({"task": "dpo"}, "not known for task dpo"),
        ({"task": "inference", "code": "vllm", "hardware": {"gpu": "h100"}}, "code vllm serves"),
    ],
)
def test_it_is_refused_where_nobody_reads_it(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        peak(logits_to_keep=8, **keys)
