"""What decoder-only families share."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.components import RMSNorm, Rotary
from memcalc.errors import ModelError
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Axis

SIZES: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 6,
    "vocab_size": 8000,
}


def sizes(**changed: Any) -> decoder.Sizes:
    """The sizes of a small file, some of them changed."""
    return decoder.read_sizes(Config({**SIZES, **changed}, where="config.json"))


def test_projections_are_as_wide_as_their_heads_together() -> None:
    read = sizes(head_dim=96)
    assert (read.queries.size, read.keys.size) == (8 * 96, 2 * 96)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_key_value_heads": 3}, "num_attention_heads 8 is not a multiple of num_key_value_heads 3"),
        ({"num_attention_heads": 10}, "hidden_size 512 is not a multiple of num_attention_heads 10, and there is no head_dim"),
        ({"head_dim": 63}, "head_dim 63 is odd"),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(changed: dict[str, int], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        sizes(**changed)


def test_equal_neighbours_are_one_block() -> None:
    blocks = decoder.layer_blocks("aabaaa", lambda kind: RMSNorm(Axis(kind, 1)))
    assert [(block.path, block.module.width.name, block.repeat) for block in blocks] == [  # type: ignore[attr-defined]
        ("layers", "a", 2),
        ("layers", "b", 1),
        ("layers", "a", 3),
    ]


def test_rotary_angles_are_kept_twice_in_fp32() -> None:
    assert decoder.rotary_buffer_bytes(Rotary(128)) == 2 * 64 * 4
