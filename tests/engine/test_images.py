"""Models that see images and no text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc import InputError, estimate
from memcalc.specs.run import Run

VIT = {
    "architectures": ["ViTForImageClassification"],
    "model_type": "vit",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 10,
}


def of(folder: Path, **keys: Any) -> Any:
    folder.joinpath("config.json").write_text(json.dumps(VIT))
    return estimate(Run.model_validate({"model": str(folder), **keys}))


def test_a_sequence_is_one_image(tmp_path: Path) -> None:
    assert "a sequence is one image: 17 tokens" in of(tmp_path, micro_batch=3).assumptions


def test_the_batch_holds_pixels_in_fp32_and_a_label_for_each_image(tmp_path: Path) -> None:
    terms = {term.path: term.bytes for term in of(tmp_path, micro_batch=3).instant("forward_end").terms}
    assert terms["batch/pixel_values"] == 3 * 3 * 32 * 32 * 4
    assert terms["batch/labels"] == 3 * 8


def test_sharding_leaves_a_part_of_parameters_and_their_states(tmp_path: Path) -> None:
    sharded = of(tmp_path, sharding={"engine": "fsdp2"}, hardware={"gpus": 4})
    assert 0 < sharded.instant("start").allocated_bytes < of(tmp_path).instant("start").allocated_bytes / 3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"seq_len": 16}, "seq_len: an image of .* is 17 tokens, not 16"),
        ({"images": 1}, "images: .* sees images and no text"),
        ({"packing": True}, "packing: .* sees images and no text"),
        ({"lora": {"r": 8}}, "lora: .* sees images and no text"),
        ({"image_size": 64}, "image_size: .* takes images of 32 pixels"),
        ({"sharding": {"tp": 2}}, "code: .* sees images alone"),
    ],
)
def test_what_belongs_to_texts_is_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        of(tmp_path, **keys)


def test_a_pooler_has_no_loss_but_runs_in_inference() -> None:
    with pytest.raises(InputError, match="ends in a pooler and has no loss"):
        estimate(Run(model="vit-base"))
    left = {term.path for term in estimate(Run(model="vit-base", task="inference")).instant("decode").terms}
    assert "activations/last_hidden_state" in left
