"""Guessing ahead: what it weighs, and what it remembers."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run


def serve(model: str, **keys: Any) -> Estimate:
    return estimate(read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h200-141g", "max_model_len": 8192, **keys}))


def added(model: str, **keys: Any) -> tuple[int, int]:
    """Bytes of weights, and of one token's cache, that guessing adds."""
    plain = {key: value for key, value in keys.items() if not key.startswith("spec")}
    with_it, without = serve(model, **keys), serve(model, **plain)
    assert with_it.serving is not None
    assert without.serving is not None
    weights = with_it.instant("load").allocated_bytes - without.instant("load").allocated_bytes
    return weights, with_it.serving.token_bytes - without.serving.token_bytes


def test_a_draft_model_has_its_own_weights_and_cache() -> None:
    assert added("llama-3.1-70b", tp=4, gpus=4, speculative_model="llama-3.2-1b")[1] == 16 * 8 * 64 * 2 * 2 // 4
    weights, _ = added("llama-3.1-8b", speculative_model="llama-3.2-1b")
    assert weights == 2 * 1_235_814_400


@pytest.mark.parametrize(("method", "more"), [("eagle", 2 * 4096**2), ("eagle3", 3 * 4096**2 + 4096 * 48 * 128 + 32_000 * 4096)])
def test_a_head_is_one_layer_and_what_joins_hidden_states(method: str, more: int) -> None:
    layer = 218_112_000
    assert added("llama-3.1-8b", speculative_method=method) == (2 * (layer + more), 4096)


def test_deepseeks_own_module_is_one_more_layer() -> None:
    """Its cache is one layer's latent more: 1,152 bytes; its experts are packed as the others are."""
    weights, token = added("deepseek-v3", tp=8, gpus=8, speculative_method="mtp")
    assert token == 70_272 // 61
    assert weights / 2**30 == pytest.approx(11.6 / 8, rel=0.1)


def test_looking_up_weighs_nothing() -> None:
    assert added("llama-3.1-8b", speculative_method="ngram", num_speculative_tokens=4) == (0, 0)


def test_only_the_last_stage_guesses() -> None:
    ranks = serve("llama-3.1-8b", pp=2, gpus=2, speculative_method="eagle").ranks
    held = {rank.rank["pp"]: [t for t in rank.instants[0].terms if "draft" in t.path] for rank in ranks}
    assert (bool(held[0]), bool(held[1])) == (False, True)


def test_what_cannot_guess() -> None:
    with pytest.raises(InputError, match="give speculative_model"):
        serve("llama-3.1-8b", speculative_method="draft_model")
    with pytest.raises(InputError, match="no module for further tokens"):
        serve("llama-3.1-8b", speculative_method="mtp")
