"""Gemma 3n with its towers: published counts, and a tower that is not known."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import ModelError
from tests.models.families.sizes import build

PATTERN = ["sliding_attention"] * 4 + ["full_attention"]


def model(periods: int, inner: int, shared: int) -> dict[str, Any]:
    """A file of that size."""
    layers = 5 * periods
    text = {
        "model_type": "gemma3n_text", "activation_sparsity_pattern": [0.95] * 10 + [0.0] * (layers - 10), "altup_correct_scale": True, "altup_num_inputs": 4,
        "attention_bias": False, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2048,
        "hidden_size_per_layer_input": 256, "intermediate_size": [inner] * layers, "laurel_rank": 64, "layer_types": PATTERN * periods,
        "max_position_embeddings": 32768, "num_attention_heads": 8, "num_hidden_layers": layers, "num_key_value_heads": 2, "num_kv_shared_layers": shared,
        "sliding_window": 512, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
    }  # fmt: skip
    sound = {
        "conf_conv_kernel_size": 5, "conf_num_attention_heads": 8, "conf_num_hidden_layers": 12, "hidden_size": 1536, "input_feat_size": 128,
        "sscp_conv_channel_size": [128, 32], "vocab_size": 128,
    }  # fmt: skip
    vision = {"architecture": "mobilenetv5_300m_enc", "hidden_size": 2048, "vocab_size": 128}
    return {"model_type": "gemma3n", "audio_config": sound, "text_config": text, "tie_word_embeddings": True, "vision_config": vision}


@pytest.mark.parametrize(("sizes", "published"), [((6, 8192, 10), 5_439_438_272), ((7, 16384, 15), 7_849_978_192)], ids=["E2B", "E4B"])
def test_checkpoints_hold_keys_and_values_of_layers_that_take_those_of_others(sizes: tuple[int, int, int], published: int) -> None:
    """Which no model is built with: two projections and a norm."""
    unused = sizes[2] * (2 * 2048 * 512 + 256)
    assert build(model(*sizes)).num_params + unused == published


def test_towers_are_counted_and_not_run() -> None:
    assert set(build(model(6, 64, 10)).untraced) == {"the vision tower on images", "the tower for sounds"}


def test_another_tower_is_refused() -> None:
    with pytest.raises(ModelError, match="architecture resnet50 is not known to memcalc: it knows mobilenetv5_300m_enc"):
        build(model(6, 64, 10), vision_config={"architecture": "resnet50", "hidden_size": 8, "vocab_size": 8})
