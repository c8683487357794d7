"""Qwen 3-Omni: what speaks beside what thinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import ModelError
from memcalc.models.families.qwen3_omni_moe import CODE2WAV, WAVES
from tests.models.families.sizes import build

THINKER: dict[str, Any] = next(
    case["config"] for case in json.loads(Path(__file__).parents[2].joinpath("data/traces_vision.json").read_text()) if case["id"] == "qwen3-omni"
)
TALKER = {
    "num_code_groups": 4,
    "thinker_hidden_size": 64,
    "text_config": {
        "hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
        "hidden_act": "silu", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 20,
    },
    "code_predictor_config": {
        "hidden_size": 48, "intermediate_size": 60, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 64, "hidden_act": "silu",
    },
}  # fmt: skip
WHOLE = {"model_type": "qwen3_omni_moe", "talker_config": TALKER, "thinker_config": THINKER, "code2wav_config": WAVES}


def test_counts_are_those_of_transformers_own_model() -> None:
    """Numel summed over each of its three parts, taken down apart."""
    thinker = build(THINKER).num_params
    assert thinker == 644_476
    assert build(WHOLE).num_params - thinker == 118_748 + CODE2WAV


def test_makers_of_waves_of_other_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match=r"code2wav_config.decoder_dim 8 is not known to memcalc: it knows 1536"):
        build(WHOLE, code2wav_config={**WAVES, "decoder_dim": 8})
