"""Virtual tokens before a frozen model: traced steps with PEFT's prompt learning, and what does not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run
from tests.traced import Case, errors, load_cases

TOLERANCE = 4e-5
"""The traces hold the numbers of the virtual tokens, 8 bytes each, which PEFT leaves on the host."""


@pytest.mark.parametrize("case", load_cases("prompt"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """Counts are equal."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


def run(**keys: Any) -> Estimate:
    """An answer for Llama 7B with 30 virtual tokens."""
    return estimate(Run.model_validate({"model": "llama-7b", "seq_len": 512, "prompt": {"num_virtual_tokens": 30, **keys.pop("prompt", {})}, **keys}))


def test_a_prefix_trains_keys_and_values_of_every_layer() -> None:
    """2 * 32 layers * 4096 for each token; a prompt one embedding, P-tuning three linear layers on it."""
    trained = {kind: run(prompt={"type": kind}).model.trainable_params for kind in ("prompt_tuning", "p_tuning", "prefix_tuning")}
    assert trained == {"prompt_tuning": 30 * 4096, "p_tuning": 30 * 4096 + 3 * (4096**2 + 4096), "prefix_tuning": 30 * 64 * 4096}


@pytest.mark.parametrize(
    "sharding", [{"engine": e, "dp": 2} for e in ("ddp", "fsdp1", "fsdp2")] + [{"engine": "deepspeed", "zero": z, "dp": 2} for z in (2, 3)]
)
@pytest.mark.parametrize("kind", ["p_tuning", "prefix_tuning"])
def test_no_engine_takes_away_what_was_not_there(sharding: dict[str, Any], kind: str) -> None:
    """No term is negative."""
    answer = run(sharding=sharding, prompt={"type": kind})
    assert min(t.bytes for i in answer.most_loaded.instants for t in i.terms) >= -8


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"lora": {}}, "prompt: virtual tokens are trained before a frozen model"),
        ({"task": "inference"}, "prompt: virtual tokens are known for training"),
        ({"prompt": {"type": "prefix_tuning"}, "recompute": "full"}, "recompute: prefix tuning keeps a cache"),
        ({"prompt": {"prefix_projection": True}}, "prompt.prefix_projection: prompt_tuning has no such network"),
        ({"model": "gemma-2-9b", "prompt": {"type": "prefix_tuning"}}, "prompt.type: layers of gemma2 do not all have equal heads"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], message: str) -> None:
    """In one line."""
    with pytest.raises(InputError) as raised:
        run(**keys)
    assert str(raised.value).startswith(message)
