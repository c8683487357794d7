"""Launches of preference and reinforcement learning: each is read into a run with its cast, and estimated."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.importers import import_files, import_text
from memcalc.specs.read import Layer, merged
from memcalc.specs.run import Run
from memcalc.units import GiB

CHAT = """deepspeed --num_gpus 8 main.py --actor_model_name_or_path facebook/opt-13b --critic_model_name_or_path facebook/opt-350m
--per_device_train_batch_size 1 --per_device_mini_train_batch_size 1 --generation_batch_numbers 1 --ppo_epochs 1 --max_answer_seq_len 256
--max_prompt_seq_len 256 --actor_weight_decay 0.1 --gradient_accumulation_steps 1 --deepspeed --enable_hybrid_engine --actor_zero_stage 3
--critic_zero_stage 3 --actor_gradient_checkpointing --critic_gradient_checkpointing --offload_reference_model"""

VERL = """python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=qwen2.5-7b actor_rollout_ref.actor.fsdp_config.param_offload=True
actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.tensor_model_parallel_size=2 data.max_prompt_length=1024
data.max_response_length=2048 data.train_batch_size=256 actor_rollout_ref.rollout.n=8 trainer.n_gpus_per_node=8 trainer.nnodes=1
algorithm.adv_estimator=grpo"""

OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --pretrain llama-3-8b --reward_pretrain llama-3-8b --zero_stage 3 --actor_num_gpus_per_node 8
--colocate_all_models --vllm_enable_sleep --vllm_gpu_memory_utilization 0.5 --prompt_max_len 1024 --generate_max_len 1024
--micro_train_batch_size 2 --train_batch_size 128 --rollout_batch_size 128 --micro_rollout_batch_size 4 --gradient_checkpointing --bf16"""


def run_of(command: str, **flags: Any) -> Run:
    found = import_files([], command=shlex.split(command))
    return merged([found.layer, Layer({"hardware": flags})])


def phases(answer: Estimate) -> list[str]:
    return [instant.name for instant in answer.most_loaded.instants]


def test_deepspeed_chat_on_40_gb_fails_in_its_rollout_and_takes_55_on_80() -> None:
    """DeepSpeedExamples 368, as given: 55 GB were seen on cards of 80."""
    answers = {gpu: estimate(run_of(CHAT, gpu=gpu)) for gpu in ("a100-40g", "a100-80g")}
    verdicts = {gpu: answer.verdict is not None and answer.verdict.fits for gpu, answer in answers.items()}
    assert verdicts == {"a100-40g": False, "a100-80g": True}
    assert answers["a100-80g"].peak.name == "rollout"
    rank = answers["a100-80g"].most_loaded
    assert rank.allocated_bytes < 55 * GiB < rank.device_bytes


def test_verl_shares_its_cards_with_a_server_that_sleeps() -> None:
    run = run_of(VERL, gpu="a100-80g")
    assert (run.task, run.rollout.tensor_parallel_size, run.rollout.prompts, run.rollout.num_generations) == ("grpo", 2, 32, 8)
    answer = estimate(run)
    assert phases(answer) == ["load", "rollout", "actor_log_probs", "advantages", "actor_update", "weight_sync"]
    weights = {i.name: sum(t.bytes for t in i.terms if t.path.startswith("actor/weights/")) for i in answer.most_loaded.instants}
    assert weights["rollout"] == 0 < weights["actor_update"]


def test_openrlhf_colocates_four_models() -> None:
    answer = estimate(run_of(OPENRLHF, gpu="a100-80g"))
    there = {term.path.split("/")[0] for term in answer.instant("advantages").terms}
    assert there == {"actor", "critic", "reference", "reward", "rollout", "experience"}


def test_openrlhf_without_colocation_has_the_actor_alone() -> None:
    answer = estimate(run_of(OPENRLHF.replace("--colocate_all_models --vllm_enable_sleep", ""), gpu="a100-80g"))
    there = {term.path.split("/")[0] for instant in answer.most_loaded.instants for term in instant.terms}
    assert there == {"actor", "experience"}
    assert any("on other cards" in note for note in answer.notes)


@pytest.mark.parametrize(
    ("module", "task"), [("train_dpo", "dpo"), ("train_rm", "reward"), ("train_kto", "kto"), ("train_sft", "train")], ids=["dpo", "rm", "kto", "sft"]
)
def test_openrlhf_names_its_task_by_its_module(module: str, task: str) -> None:
    command = f"deepspeed --num_gpus 8 --module openrlhf.cli.{module} --model.model_name_or_path llama-3-8b --data.max_len 2048 --train.micro_batch_size 1"
    run = run_of(command, gpu="a100-80g")
    assert run.task == task
    assert estimate(run).peak.allocated_bytes > 0


TRL_FILES = {
    "dpo": "model_name_or_path: qwen2-0.5b\nbeta: 0.1\nmax_length: 512\nper_device_train_batch_size: 1\n",
    "dpo, precomputed": "model_name_or_path: qwen2-0.5b\nbeta: 0.1\nmax_length: 512\nprecompute_ref_log_probs: true\nper_device_train_batch_size: 1\n",
    "grpo": "model_name_or_path: qwen2-0.5b\nnum_generations: 8\nmax_completion_length: 256\nper_device_train_batch_size: 8\nbeta: 0.04\n",
    "grpo without KL": "model_name_or_path: qwen2-0.5b\nnum_generations: 8\nmax_completion_length: 256\nper_device_train_batch_size: 8\n",
    "ppo": "model_name_or_path: qwen2-0.5b\nreward_model_path: qwen2-0.5b\nresponse_length: 64\nper_device_train_batch_size: 2\nlearning_rate: 1e-6\n",
}


@pytest.mark.parametrize(("name", "text"), TRL_FILES.items(), ids=TRL_FILES)
def test_files_of_trl_say_who_takes_part(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(text)
    run = merged([import_files([str(path)]).layer])
    answer = estimate(run)
    assert run.task == name.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    there = {term.path.split("/")[0] for instant in answer.most_loaded.instants for term in instant.terms} - {"experience"}
    expected = {"dpo": {"actor", "reference"}, "grpo": {"actor", "reference"}, "ppo": {"actor", "reference", "critic", "reward"}}
    assert there == expected.get(name, {"actor"})


def test_nemo_rl_trains_what_its_sections_say() -> None:
    """PPO has a critic, distillation a teacher, and what belongs to neither goes."""
    text = "policy: {model_name: llama-3.2-1b}\nvalue: {model_name: llama-3.2-3b, train_micro_batch_size: 4}\nteacher: {model_name: llama-3.1-8b}\n"
    data = import_text(f"{text}ppo: {{ppo_epochs: 4}}\n").layer.data
    assert (data["task"], data["rl"]["epochs"], data["roles"]) == ("ppo", 4, {"critic": {"model": "llama-3.2-3b", "micro_batch": 4}, "reward": None})
    data = import_text(f"{text}distillation: {{num_prompts_per_step: 4}}\n").layer.data
    assert (data["task"], data["roles"]) == ("distill", {"teacher": {"model": "llama-3.1-8b"}})
    data = import_text(f"{text}rm: {{max_num_epochs: 1}}\n").layer.data
    assert data["task"] == "reward"
    assert "roles" not in data
