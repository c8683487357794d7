"""LFM2: which layers are which, and how wide its networks are."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import ModelError
from memcalc.models.config import Config
from memcalc.models.families import lfm2


def config(**data: Any) -> Config:
    """A file of these keys."""
    return Config({"model_type": "lfm2", **data}, where="config.json")


def test_widths_are_two_thirds_rounded_up() -> None:
    """LFM2-1.2B: two thirds of 12288 are 8192; a width that is no multiple goes up to the next."""
    switches = {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}
    assert lfm2.width(config(block_ff_dim=12288, **switches)) == 8192
    assert lfm2.width(config(intermediate_size=6656, **switches)) == 4608
    assert lfm2.width(config(intermediate_size=6656, block_auto_adjust_ff_dim=False)) == 6656


def test_layers_of_attention_are_listed_or_named() -> None:
    """Older files list them."""
    assert lfm2.layer_kinds(config(full_attn_idxs=[1]), 3) == ("conv", "full_attention", "conv")
    assert lfm2.layer_kinds(config(layer_types=["conv", "full_attention"]), 2) == ("conv", "full_attention")
    with pytest.raises(ModelError, match="layer_types must name conv or full_attention for each of the 3 layers"):
        lfm2.layer_kinds(config(layer_types=["conv", "full_attention"]), 3)
