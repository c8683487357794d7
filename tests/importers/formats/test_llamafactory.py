"""LLaMA-Factory where it serves, and its products in fp8."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files, import_text
from memcalc.specs.read import merged

CHAT = "model_name_or_path: llama-3.1-8b\ntemplate: llama3\n"
SFT = "model_name_or_path: llama-3.1-8b\nstage: sft\nfinetuning_type: full\nbf16: true\n"


def run_of(text: str) -> dict[str, Any]:
    return merged([import_text(text).layer]).as_dict()


def test_an_api_over_vllm_has_seven_tenths_of_the_card() -> None:
    found = run_of(CHAT + "infer_backend: vllm\nvllm_maxlen: 8192\n")
    assert (found["code"], found["task"], found["seq_len"], found["serving"]["gpu_memory_utilization"]) == ("vllm", "inference", 8192, 0.7)


def test_a_chat_generates_with_transformers() -> None:
    found = import_files([], command=shlex.split("llamafactory-cli chat --model_name_or_path llama-3.1-8b --max_new_tokens 256")).layer.data
    assert (found["task"], found["dtype"], found["new_tokens"]) == ("inference", "bfloat16", 256)
    assert not {"lora", "optimizer", "recompute"} & set(found)


def test_a_backend_beside_a_stage_is_for_later() -> None:
    assert run_of(SFT + "infer_backend: vllm\n")["task"] == "train"


def test_a_backend_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="infer_backend ktransformers is not counted; huggingface, vllm, sglang are"):
        run_of(CHAT + "infer_backend: ktransformers\n")


@pytest.mark.parametrize(("more", "products"), [("fp8: true\nfp8_backend: te\n", "te"), ("fp8: true\n", "torchao"), ("", None)])
def test_products_in_fp8(more: str, products: str | None) -> None:
    assert run_of(SFT + more).get("fp8") == products


def test_what_writes_a_model_is_refused() -> None:
    with pytest.raises(InputError, match="nothing is trained or served"):
        run_of("model: llama-3.1-8b\npeft_config: {name: lora}\nexport_dir: merged\n")


def test_samples_packed_neatly_are_kept_apart_by_a_mask() -> None:
    assert run_of(SFT + "neat_packing: true\n")["packing"] is True
    assert run_of(SFT + "neat_packing: true\nflash_attn: fa2\n")["packing"] is False


def test_preferences_that_need_no_reference_have_none() -> None:
    dpo = SFT.replace("sft", "dpo")
    assert [run_of(f"{dpo}pref_loss: {loss}\n")["task"] for loss in ("sigmoid", "orpo", "simpo")] == ["dpo", "orpo", "simpo"]
    assert run_of(dpo + "ref_model: llama-3.2-1b\n")["roles"] == {"reference": {"model": "llama-3.2-1b"}}


def test_ppo_has_its_value_head_and_its_reward_on_the_actors_trunk() -> None:
    ppo = SFT.replace("sft", "ppo").replace("full", "lora") + "reward_model: there\ncutoff_len: 512\nmax_new_tokens: 256\n"
    found = run_of(ppo)
    assert found["roles"] == {"critic": {"shares": "actor"}, "reward": {"shares": "actor"}}
    assert (found["rollout"]["prompt_length"], found["rollout"]["response_length"]) == (512, 256)
    assert run_of(ppo + "reward_model_type: full\n")["roles"]["reward"] == {"model": "there"}
    assert run_of(ppo + "reward_model_type: api\n")["roles"]["reward"] is None


V1 = "model: llama-3.1-8b\ntrain_dataset: data.yaml\ndist_config: {name: fsdp2}\ncutoff_len: 2048\n"


def test_v1_trains_all_in_fp32_unless_adapters_are_asked_for() -> None:
    whole = run_of(V1)
    assert (whole["dtype"], whole["autocast"], whole["micro_batch"], whole["sharding"]["engine"]) == ("float32", "bfloat16", 1, "fsdp2")
    adapted = run_of(V1 + "peft_config: {name: lora, r: 16, target_modules: all}\nquant_config: {name: bnb, quantization_bit: 4}\n")
    assert (adapted["lora"]["r"], adapted["lora"]["dropout"], adapted["lora"]["target_modules"], adapted["quantization"]) == (16, 0.05, "all-linear", "nf4-dq")
    assert run_of(V1 + "peft_config: {name: freeze, freeze_trainable_layers: 4}\n")["trainable_layers"] == 4


def test_v1_has_kernels_optimizers_and_files_of_deepspeed_in_sections() -> None:
    more = "kernel_config: {name: liger_kernel}\noptim_config: {name: muon, wd: 0.1}\n"
    found = import_text(V1.replace("fsdp2", "deepspeed, config_file: examples/deepspeed/ds_z2_config.json") + more)
    data = found.layer.data
    assert (data["optimizer"], data["liger"], data["sharding"]["deepspeed"]["zero_optimization"]["stage"]) == ("muon", {"fused_linear_cross_entropy": False}, 2)
    assert not found.unused


@pytest.mark.parametrize(("before", "grow"), [("NPROC_PER_NODE=8", True), ("OPTIM_TORCH=0 NPROC_PER_NODE=8", None), ("CUDA_VISIBLE_DEVICES=0", None)])
def test_its_launcher_lets_segments_grow(before: str, grow: bool | None) -> None:
    command = f"{before} llamafactory-cli train --stage sft --model_name_or_path llama-3.1-8b --cutoff_len 1024"
    assert import_files([], command=shlex.split(command)).layer.data.get("expandable_segments") == grow
