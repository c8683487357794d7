"""A DeepSpeed JSON as people write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.specs.deepspeed_file import Trainer, read_deepspeed, resolve_auto

AUTO: dict[str, Any] = {
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale": 0},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
    },
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
}


def test_defaults_are_deepspeeds_own() -> None:
    zero = read_deepspeed({"zero_optimization": {"stage": 3}}).zero
    assert (zero.reduce_bucket_size, zero.sub_group_size, zero.prefetch_bucket_size) == (5 * 10**8, 10**9, 5 * 10**7)
    assert (zero.max_live_parameters, zero.max_reuse_distance, zero.param_persistence_threshold) == (10**9, 10**9, 10**5)


def test_the_trainer_fills_in_sizes_made_of_the_hidden_size() -> None:
    found = read_deepspeed(AUTO, trainer=Trainer(4096, "bfloat16"))
    assert (found.zero.reduce_bucket_size, found.zero.prefetch_bucket_size, found.zero.param_persistence_threshold) == (4096**2, 15099494, 40960)
    assert found.dtype == "bfloat16"
    assert found.gradient_clipping == 1.0


def test_deepspeed_itself_drops_auto_and_uses_its_defaults() -> None:
    found = read_deepspeed(AUTO)
    assert found.zero.reduce_bucket_size == 5 * 10**8
    assert found.dtype == "float32"


@pytest.mark.parametrize("prefix", ["", "stage3_"])
def test_both_spellings_of_a_key_are_read(prefix: str) -> None:
    assert read_deepspeed({"zero_optimization": {"stage": 3, f"{prefix}max_live_parameters": 5}}).zero.max_live_parameters == 5


@pytest.mark.parametrize("old", ["cpu_offload", "cpu_offload_params", "cpu_offload_param"])
def test_old_names_of_offload_are_read(old: str) -> None:
    zero = read_deepspeed({"zero_optimization": {"stage": 3, old: True}}).zero
    offload = zero.offload_optimizer if old == "cpu_offload" else zero.offload_param
    assert offload.device == "cpu"


def test_a_bool_for_the_block_is_stage_one() -> None:
    assert read_deepspeed({"zero_optimization": True}).zero.stage == 1


def test_bf16_may_be_spelt_out() -> None:
    assert read_deepspeed({"bfloat16": {"enabled": True}}).dtype == "bfloat16"


def test_communication_overlaps_by_default_at_stage_three_alone() -> None:
    assert [read_deepspeed({"zero_optimization": {"stage": stage}}).zero.overlaps for stage in range(4)] == [False, False, False, True]


def test_what_is_not_understood_is_listed_and_what_changes_nothing_is_not() -> None:
    data = {"steps_per_print": 10, "zenflow": {}, "zero_optimization": {"stage": 2, "allgather_partitions": True, "zero_quantized_gradients": True}}
    assert read_deepspeed(data).unused == ("zero_optimization.zero_quantized_gradients", "zenflow")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}}))
    assert read_deepspeed(str(path)).zero.stage == 2


def test_json_text_is_read() -> None:
    assert read_deepspeed('{"zero_optimization": {"stage": 2}}').zero.stage == 2


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"zero_optimization": {"stage": 4}}, "stage is 4"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}}, "device is 'disk'"),
        ({"zero_optimization": []}, "zero_optimization is []"),
        ({"zero_optimization": {"reduce_bucket_size": 0.5}}, "reduce_bucket_size is 0.5"),
        ("nowhere.json", "cannot read 'nowhere.json'"),
        ("{", "not JSON"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_says_what_and_where(data: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_deepspeed(data)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_resolving_leaves_the_source_as_it_is() -> None:
    before = json.dumps(AUTO)
    resolve_auto(AUTO, None)
    assert json.dumps(AUTO) == before


def test_leaf_modules_are_read_and_unknown_ways_to_name_them_noted() -> None:
    found = read_deepspeed({"zero_optimization": {"stage": 3, "leaf_module": {"classes": "OlmoeSparseMoeBlock", "names": ["model.layers.0.mlp"]}}})
    assert found.zero.leaf_module.classes == ("OlmoeSparseMoeBlock",)
    assert found.unused == ("zero_optimization.leaf_module.names",)
