"""Granite 4: kinds of layers as files before and after transformers 5 name them."""

from __future__ import annotations

import pytest

from memcalc.errors import ModelError
from memcalc.models.config import Config
from memcalc.models.families import granitemoehybrid


def test_old_and_new_names_mean_the_same() -> None:
    """The checkpoints' files say mamba and attention."""
    old = Config({"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"]}, where="config.json")
    new = Config({"model_type": "granitemoehybrid", "layers_block_type": ["linear_attention", "full_attention"]}, where="config.json")
    assert granitemoehybrid.layer_kinds(old, 2) == granitemoehybrid.layer_kinds(new, 2) == ("linear_attention", "full_attention")
    with pytest.raises(ModelError, match="layer_types must name linear_attention or full_attention for each of the 3 layers"):
        granitemoehybrid.layer_kinds(old, 3)
