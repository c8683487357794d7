"""Placing a model that serves: the fewest cards, the most sequences, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.report import placements as report
from memcalc.report.style import Style
from memcalc.specs.read import read_run
from memcalc.whatif.placements import Placements, place


def placed(model: str, sequences: int = 1, **keys: Any) -> Placements:
    return place(read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h100-80g", **keys}), sequences=sequences)


def test_llama_70b_needs_two_h100_and_serves_most_with_all_eight_as_one() -> None:
    """65.7 GiB of weights on each of two leave room for one sequence; replicas of two hold them four times over."""
    found = placed("llama-3.1-70b", gpus=8, max_model_len=8192)
    assert found.fewest is not None
    assert found.most is not None
    assert (found.fewest.tp, found.fewest.pp, found.fewest.replicas) == (2, 1, 4)
    assert (found.most.tp, found.most.replicas) == (8, 1)
    one = next(way for way in found.every if way.cards == 1)
    assert not one.starts
    assert "No available memory" in one.why


def test_small_models_serve_most_as_replicas_of_few_cards() -> None:
    """With 0.6 billion parameters weights are little, and every engine loses its profiling run to activations."""
    found = placed("qwen3-0.6b", gpus=4, max_model_len=8192)
    assert found.fewest is not None
    assert found.fewest.cards == 1
    assert all(way.replicas * way.cards == 4 for way in found.every)


def test_without_a_number_of_cards_the_fewest_are_found() -> None:
    found = placed("deepseek-v3", gpu="h200-141g", max_model_len=32_768)
    assert found.fewest is not None
    assert (found.fewest.tp, found.fewest.pp) == (8, 1)


def test_as_many_sequences_as_are_asked_for() -> None:
    enough, too_many = (placed("llama-3.1-8b", n, gpus=2, max_model_len=8192) for n in (100, 10_000))
    assert enough.fewest is not None
    assert enough.fewest.sequences >= 100
    assert too_many.fewest is None


def test_transformers_is_placed_by_its_largest_batch() -> None:
    found = placed("llama-3.1-8b", code="transformers", gpu="rtx4090-24g", gpus=2, seq_len=4096)
    by_tp = {way.tp: way for way in found.every if way.pp == 1}
    assert by_tp[2].sequences > by_tp[1].sequences > 0
    assert by_tp[1].kv_cache_bytes == 4096 * 131_072


def test_latents_are_held_once_where_ranks_have_sequences_of_their_own() -> None:
    """DeepSeek-V3 on eight cards: tp 8 keeps every latent eight times; the same flags estimate to the same sequences."""
    found = placed("deepseek-v3", gpu="h200-141g", gpus=8, max_model_len=8192)
    assert found.fewest is not None
    assert found.most is not None
    by_degrees = {(one.tp, one.pp, one.dp): one for one in found.every}
    assert (found.fewest.tp, found.fewest.dp) == (8, 1)
    assert by_degrees[1, 1, 8].sequences > 4 * by_degrees[8, 1, 1].sequences
    assert report.flags_of(by_degrees[4, 1, 2]) == "--tp 4 --dp 2 --enable-expert-parallel --gpus 8"
    assert "Most sequences on all 8:" in report.conclusion(found)
    assert "Ranks of dp share" in report.text(found, Style(100))
    sglang = placed("deepseek-v3", code="sglang", gpu="h200-141g", gpus=8, max_model_len=8192)
    assert {(one.tp, one.dp) for one in sglang.every if one.dp > 1} == {(8, 8), (4, 4), (2, 2)}


def test_degrees_that_are_given_are_kept_and_reasons_are_told() -> None:
    assert {(way.tp, way.pp) for way in placed("llama-3.1-8b", tp=2, gpus=4).every} == {(2, 1), (2, 2)}
    with pytest.raises(InputError, match="does not divide"):
        placed("llama-3.1-8b", tp=3, gpus=3)


@pytest.mark.parametrize(
    ("code", "keys", "flags"),
    [
        ("transformers", {"seq_len": 512}, "--gpus 1"),
        ("trtllm", {"max_model_len": 512}, "--gpus 1"),
        ("sglang", {"max_model_len": 512}, "--gpus 1"),
        ("llamacpp", {"seq_len": 512, "quantization": "q4_0"}, "--gpus 1"),
    ],
)
def test_every_code_has_words(code: str, keys: dict[str, Any], flags: str) -> None:
    assert f"flags: {flags}." in report.conclusion(placed("qwen3-0.6b", code=code, **keys))


def test_the_words() -> None:
    two = placed("llama-3.1-70b", gpus=8, max_model_len=8192)
    assert "Fewest cards: 2 (tp 2), 1 sequence at once, one of up to" in report.text(two, Style(100))
    assert "Most sequences on all 8: tp 8 × 1" in report.conclusion(two)
    none = placed("llama-3.1-405b", gpus=1)
    assert "No way suffices: No available memory" in report.conclusion(none)
    assert '"fewest": null' in report.as_json(none)
    assert report.comma_separated(none).splitlines()[0].startswith("tp,pp,dp,replicas,weights_bytes")
    assert report.markdown(none).startswith("**llama-3.1-405b on 1 × h100-80g")
