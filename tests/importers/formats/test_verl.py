"""verl's Megatron workers: what is cut, what is put away, and what a launch leaves to them."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.specs.read import merged

ACTOR = "actor_rollout_ref.actor."
LAUNCH = (
    "python3 -m verl.trainer.main_ppo --config-path=config --config-name=ppo_megatron_trainer.yaml actor_rollout_ref.model.path=qwen3-30b-a3b "
    "algorithm.adv_estimator=grpo data.max_prompt_length=1024 data.max_response_length=1024 trainer.n_gpus_per_node=8 trainer.nnodes=4 "
    f"{ACTOR}ppo_mini_batch_size=128 {ACTOR}ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.name=vllm "
    f"{ACTOR}megatron.tensor_model_parallel_size=4 {ACTOR}megatron.pipeline_model_parallel_size=2 {ACTOR}megatron.expert_model_parallel_size=4 "
)
FSDP = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=qwen2.5-7b trainer.n_gpus_per_node=8 trainer.nnodes=2 "


def run_of(command: str) -> dict[str, Any]:
    return merged([import_files([], command=shlex.split(command)).layer]).as_dict()


def test_the_file_of_defaults_says_that_megatron_trains() -> None:
    found = run_of(LAUNCH)
    sharding = found["sharding"]
    assert (found["code"], found["dtype"], found.get("autocast"), found["recompute"]) == ("megatron", "bfloat16", None, "none")
    assert [sharding[key] for key in ("engine", "tp", "pp", "ep", "sp")] == ["megatron", 4, 2, 4, True]
    assert (sharding["use_distributed_optimizer"], sharding["gradient_accumulation_fusion"]) == (True, False)


def test_null_is_nothing() -> None:
    assert run_of(LAUNCH + f"{ACTOR}megatron.virtual_pipeline_model_parallel_size=null {ACTOR}ppo_micro_batch_size=null")["sharding"]["vpp"] == 1


def test_a_mini_batch_is_one_of_prompts_over_data_parallel_ranks() -> None:
    """128 prompts of 8 answers over 32 / (4 * 2) ranks, in micro-batches of 2."""
    assert run_of(LAUNCH)["grad_accum"] == 128 * 8 // 4 // 2


def test_buffers_of_gradients_go_with_the_weights_and_a_reference_where_the_actor_goes() -> None:
    away = f"{ACTOR}megatron.param_offload=True {ACTOR}megatron.optimizer_offload=True {ACTOR}megatron.grad_offload=True {ACTOR}use_kl_loss=True"
    roles = run_of(LAUNCH + away)["roles"]
    assert roles["actor"]["idle"] == {"params": "cpu", "gradients": "cpu", "optimizer": "cpu"}
    assert roles["reference"]["idle"] == {"params": "cpu"}


def test_options_of_the_transformer_and_the_optimizer_are_megatrons() -> None:
    place, optimizer = f"+{ACTOR}megatron.override_transformer_config.", f"+{ACTOR}optim.override_optimizer_config."
    words = [f"{place}{word}" for word in ("recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1", "moe_router_dtype=fp32")]
    words += [f"{optimizer}{word}" for word in ("optimizer_cpu_offload=True", "optimizer_offload_fraction=0.5", "use_precision_aware_optimizer=True")]
    found = run_of(LAUNCH + " ".join(words))
    assert (found["recompute"], found["recompute_method"], found["offload"]["optimizer"]) == ("full", "uniform", "cpu")
    assert [found["sharding"][key] for key in ("moe_router_dtype", "optimizer_offload_fraction", "use_precision_aware_optimizer")] == ["fp32", 0.5, True]


def test_fsdp_has_no_use_for_megatrons_options() -> None:
    found = run_of(FSDP + f"{ACTOR}megatron.tensor_model_parallel_size=4 {ACTOR}megatron.param_offload=True")
    assert (found["code"], found["sharding"]["tp"], found["roles"].get("actor")) == ("transformers", 1, None)


def test_budgets_of_tokens_are_of_all_ranks_that_share_a_sequence() -> None:
    words = f"{ACTOR}use_dynamic_bsz=True {ACTOR}ppo_max_token_len_per_gpu=8192 "
    assert run_of(LAUNCH + words + f"{ACTOR}megatron.context_parallel_size=2")["rl"]["max_token_len"] == 16384
    ulysses = run_of(FSDP + words + f"{ACTOR}ulysses_sequence_parallel_size=4")
    assert (ulysses["rl"]["max_token_len"], ulysses["sharding"]["cp"]) == (32768, 4)


def test_sharded_groups_smaller_than_all_cards_have_replicas() -> None:
    sharding = run_of(FSDP + f"{ACTOR}fsdp_config.fsdp_size=8")["sharding"]
    assert (sharding["dp_replicate"], sharding["fsdp_sharding_strategy"]) == (2, "HYBRID_SHARD")
    with pytest.raises(InputError, match="sharded groups of 2 ranks beside sequences split over more"):
        run_of(FSDP + f"{ACTOR}fsdp_config.fsdp_size=2 {ACTOR}ulysses_sequence_parallel_size=4")


def test_engines_apart_generate_on_cards_of_their_own() -> None:
    found = run_of(FSDP + "actor_rollout_ref.hybrid_engine=False rollout.nnodes=1 rollout.n_gpus_per_node=8 data.train_batch_size=0")
    assert (found["rollout"]["cards"], found["rollout"].get("prompts"), found["hardware"]["gpus"]) == ("other", None, 16)


def test_what_a_server_is_told_is_vllms() -> None:
    words = "actor_rollout_ref.rollout.max_num_seqs=512 actor_rollout_ref.rollout.enforce_eager=True actor_rollout_ref.model.lora_rank=20 "
    told, silent = (run_of(FSDP + words + f"actor_rollout_ref.rollout.name={name}").get("serving", {}) for name in ("vllm", "sglang"))
    assert told.items() >= {"max_num_seqs": 512, "enforce_eager": True, "enable_lora": True, "max_lora_rank": 32}.items()
    assert not any(silent.get(key) for key in ("max_num_seqs", "enforce_eager", "enable_lora"))


def test_adapters_are_those_of_megatrons_fused_layers() -> None:
    lora = run_of(LAUNCH + "actor_rollout_ref.model.lora.rank=16 actor_rollout_ref.model.lora.target_modules=['linear_proj']")["lora"]
    assert (lora["r"], lora["target_modules"], lora["dtype"]) == (16, ("o_proj",), "bfloat16")


def test_a_coefficient_that_is_no_number_is_refused_where_it_stands() -> None:
    with pytest.raises(InputError, match="entropy_coeff is 'abc'; accepted: a number"):
        run_of(FSDP + f"{ACTOR}entropy_coeff=abc")
