"""Qwen 2.5-Omni: what speaks beside what thinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import ModelError
from memcalc.models.families.qwen2_5_omni import TOKEN2WAV, WAVES
from tests.models.families.sizes import build

THINKER: dict[str, Any] = next(
    case["config"] for case in json.loads(Path(__file__).parents[2].joinpath("data/traces_vision.json").read_text()) if case["id"] == "qwen2.5-omni"
)
TALKER = {
    "embedding_size": 64, "head_dim": 16, "hidden_act": "silu", "hidden_size": 48, "intermediate_size": 70, "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
WHOLE = {"model_type": "qwen2_5_omni", "talker_config": TALKER, "thinker_config": THINKER, "token2wav_config": WAVES}


def test_the_talker_is_counted_by_hand() -> None:
    """A projection of the thinker's states, a table as wide as those, layers with biases on queries, keys and values, and a head."""
    layer = 48 * (64 + 2 * 32) + (64 + 2 * 32) + 64 * 48 + 3 * 48 * 70 + 2 * 48
    talker = (64 * 48 + 48) + 100 * 64 + 48 + 100 * 48 + 2 * layer
    assert build(WHOLE).num_params - build(THINKER).num_params == talker + TOKEN2WAV


def test_without_speech_the_thinker_is_all() -> None:
    assert build(WHOLE, enable_audio_output=False).num_params == build(THINKER).num_params


def test_makers_of_waves_of_other_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match=r"token2wav_config.dit_config.emb_dim 8 is not known to memcalc: it knows 512"):
        build(WHOLE, token2wav_config={**WAVES, "dit_config": {**WAVES["dit_config"], "emb_dim": 8}})
