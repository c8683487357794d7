"""TRL's trainers, by the names of scripts and by keys that no other trainer has; what they and plain scripts leave open."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import Imported, import_files, import_text
from memcalc.specs.read import merged

PLAIN = "model_name_or_path: llama-3.1-8b\nper_device_train_batch_size: 1\nlearning_rate: 1e-5\noutput_dir: o\n"


def read(command: str) -> Imported:
    return import_files([], command=shlex.split(command))


def run_of(found: Imported) -> dict[str, Any]:
    return merged([found.layer]).as_dict()


@pytest.mark.parametrize(
    ("command", "task"),
    [
        ("python trl/scripts/dpo.py --model_name_or_path qwen2-0.5b --learning_rate 1e-6", "dpo"),
        ("accelerate launch examples/scripts/dpo_vlm.py --model_name_or_path qwen2-0.5b", "dpo"),
        ("trl kto --model_name_or_path qwen2-0.5b", "kto"),
        ("python bco.py --model_name_or_path qwen2-0.5b --learning_rate 1e-6", "kto"),
        ("python cpo.py --model_name_or_path qwen2-0.5b --loss_type simpo --cpo_alpha 0.0", "simpo"),
        ("python cpo.py --model_name_or_path qwen2-0.5b --loss_type simpo", "orpo"),
        ("python examples/scripts/reward_modeling.py --model_name_or_path qwen2-0.5b --learning_rate 1e-6", "reward"),
        ("python grpo_agent.py --model_name_or_path qwen2-0.5b --max_completion_length 1024", "grpo"),
        ("python gkd.py --model_name_or_path qwen2-0.5b --teacher_model_name_or_path qwen2-1.5b --beta 0.5", "distill"),
    ],
)
def test_a_trainer_is_in_the_name_of_its_script(command: str, task: str) -> None:
    assert run_of(read(command))["task"] == task


@pytest.mark.parametrize("script", ["online_dpo_vlm.py", "nash_md.py", "prm.py"])
def test_trainers_with_passes_of_their_own_are_refused(script: str) -> None:
    with pytest.raises(InputError, match="is not counted; sft, dpo"):
        read(f"python examples/scripts/{script} --model_name_or_path qwen2-0.5b")


@pytest.mark.parametrize(
    ("keys", "task"),
    [
        ("teacher_model_name_or_path: qwen2-1.5b\nbeta: 0.5", "distill"),
        ("desirable_weight: 1.0\nbeta: 0.1", "kto"),
        ("center_rewards_coefficient: 0.01", "reward"),
    ],
)
def test_a_trainer_is_known_by_keys_of_its_own(keys: str, task: str) -> None:
    assert run_of(import_text(PLAIN + keys))["task"] == task


def test_what_packs_by_positions_needs_a_mask_unless_the_kernel_is_flash() -> None:
    packed = PLAIN + "packing: true\nmax_length: 2048\n"
    assert run_of(import_text(packed))["packing"] is True
    assert "packing" not in import_text(packed + "packing_strategy: wrapped\n").layer.data
    assert "packing" not in import_text(packed + "attn_implementation: flash_attention_2\n").layer.data


def test_adapters_of_trl_drop_out_and_names_may_stand_between_commas() -> None:
    found = run_of(read('trl sft --model_name_or_path qwen2-0.5b --use_peft --lora_target_modules "q_proj", "v_proj"'))["lora"]
    assert (found["dropout"], list(found["target_modules"]), found["r"]) == (0.05, ["q_proj", "v_proj"], 16)


def test_an_evaluation_is_shown_where_it_takes_more_at_once() -> None:
    asked = PLAIN + "eval_strategy: steps\n"
    assert run_of(import_text(asked))["evaluation"]["micro_batch"] == 8
    assert "evaluation" not in import_text(asked + "per_device_eval_batch_size: 1\n").layer.data
    assert "evaluation" not in import_text(PLAIN + "per_device_eval_batch_size: 16\n").layer.data
    beside = import_text(asked + "beta: 0.1\n")
    assert "evaluation" not in beside.layer.data
    assert any("beside task dpo is not counted" in line for line in beside.unused)


@pytest.mark.parametrize(
    ("key", "dtype"), [("", "float32"), ("warmup_ratio: 0.1", "float32"), ("use_cache: false", "bfloat16"), ("dtype: bfloat16", "bfloat16")]
)
def test_a_script_loads_as_the_version_that_its_keys_show(key: str, dtype: str) -> None:
    found = import_text(f"{PLAIN}bf16: true\n{key}\n")
    assert run_of(found)["dtype"] == dtype
    assert any("from_pretrained" in line for line in found.assumed) == ("dtype" not in key)


def test_what_products_with_packed_weights_are_taken_in() -> None:
    found = run_of(import_text(PLAIN + "load_in_4bit: true\nuse_peft: true\nbnb_4bit_compute_dtype: torch.float16\n"))
    assert (found["quantization"], found["bnb_4bit_compute_dtype"]) == ("nf4", "float16")


def test_ppos_values_begin_as_its_rewards_and_are_trained_whole() -> None:
    roles = run_of(import_text(PLAIN + "reward_model_path: llama-3.2-1b\nuse_peft: true\n"))["roles"]
    assert roles["critic"] == {"model": "llama-3.2-1b", "lora": None}


def test_a_shard_in_fp32_is_no_matter_of_how_the_model_was_loaded() -> None:
    found = import_text(PLAIN + "bf16: true\nfsdp: full_shard auto_wrap\n")
    assert run_of(found)["dtype"] == "float32"
    assert not any("from_pretrained" in line for line in found.assumed)
