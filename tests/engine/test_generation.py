"""Generation with transformers' dynamic cache against traced loops (transformers 5.24, tiny models, two prompts of 1200 tokens, four new ones)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run

SIZES = {
    "hidden_size": 256, "intermediate_size": 520, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1000,
    "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA = {**SIZES, "model_type": "llama", "num_hidden_layers": 3}
GEMMA = {**SIZES, "model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 64, "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}


def answer(config: dict[str, Any], folder: Path, **keys: Any) -> Estimate:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return estimate(read_run(str(path), task="inference", micro_batch=2, seq_len=1200, **keys))


def above_weights(found: Estimate, name: str) -> int:
    return found.instant(name).allocated_bytes - found.instant("load").allocated_bytes


def test_a_dynamic_cache_grows_by_a_copy_of_one_tensor(tmp_path: Path) -> None:
    """Traced in the last of three steps after the prefill: 2,179,528 bytes above weights and buffers."""
    assert above_weights(answer(LLAMA, tmp_path, new_tokens=4), "generate") == pytest.approx(2_179_528, rel=0.005)


def test_eager_attention_repeats_keys_and_values(tmp_path: Path) -> None:
    """Traced likewise: 4,532,340."""
    assert above_weights(answer(LLAMA, tmp_path, new_tokens=4, attention="eager"), "generate") == pytest.approx(4_532_340, rel=0.005)


def test_layers_with_windows_let_go_once_the_first_token_comes(tmp_path: Path) -> None:
    """Traced: the peak is in the first step, 3,742,352, when caches hold all of the prompt; from the third on, 1,111,728."""
    assert above_weights(answer(GEMMA, tmp_path, new_tokens=4), "generate") == pytest.approx(3_742_352, rel=0.015)


@pytest.mark.parametrize(
    ("config", "attention", "room", "prefill", "last"),
    [
        (LLAMA, "sdpa", None, 14_433_408, 1_891_336),
        (LLAMA, "sdpa", 2000, 15_657_600, 3_128_280),
        (LLAMA, "eager", 2000, 405_865_600, 7_523_448),
        (GEMMA, "sdpa", 2000, 16_992_640, 1_250_768),
        (GEMMA, "eager", 2000, 409_895_040, 5_639_672),
    ],
)
def test_static_caches(config: dict[str, Any], attention: str, room: int | None, prefill: int, last: int, tmp_path: Path) -> None:  # noqa: PLR0917
    """Traced: room for all tokens from the first on, windows full at once; eager attention looks at all of the room."""
    keys = {"attention": attention, "cache_implementation": "static"} | ({} if room is None else {"max_cache_len": room})
    found = answer(config, tmp_path, new_tokens=4, **keys)
    assert above_weights(found, "prefill") == prefill
    assert above_weights(found, "generate") == pytest.approx(last, rel=0.01)


def test_nothing_is_generated_unless_asked(tmp_path: Path) -> None:
    assert [instant.name for instant in answer(LLAMA, tmp_path).most_loaded.instants] == ["load", "prefill", "decode"]


def test_a_long_answer_outgrows_the_prefill(tmp_path: Path) -> None:
    short, long = (above_weights(answer(LLAMA, tmp_path, new_tokens=n), "generate") for n in (4, 4 * 10**5))
    assert long > above_weights(answer(LLAMA, tmp_path, new_tokens=4), "prefill") > short


def test_training_generates_nothing() -> None:
    with pytest.raises(InputError, match="inference"):
        estimate(read_run("llama-3.2-1b", new_tokens=4))


def test_beams_are_sequences_from_the_prompt_on(tmp_path: Path) -> None:
    beams, plain = answer(LLAMA, tmp_path, num_beams=4), answer(LLAMA, tmp_path)
    for name in ("prefill", "decode"):
        assert above_weights(beams, name) == pytest.approx(4 * above_weights(plain, name), rel=0.02)


def test_training_searches_no_beams() -> None:
    with pytest.raises(InputError, match="inference"):
        estimate(read_run("llama-3.2-1b", num_beams=4))
