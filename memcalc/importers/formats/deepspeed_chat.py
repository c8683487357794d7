"""DeepSpeed-Chat's third step: actor, reference, critic and reward, each under a DeepSpeed configuration of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers.facts import TRAINER, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, whole_number, word

VERSION = "DeepSpeed-Chat of DeepSpeedExamples 2024"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By the name that only it has for a model."""
    return "actor_model_name_or_path" in keys


KEYS: dict[str, Rule] = {
    "actor_model_name_or_path": "model",
    "critic_model_name_or_path": "~critic",
    "per_device_generation_batch_size": whole_number("~generated"),
    "per_device_training_batch_size": whole_number("micro_batch"),
    "per_device_train_batch_size": whole_number("~generated"),
    "per_device_mini_train_batch_size": whole_number("micro_batch"),
    "generation_batches": whole_number("~batches"),
    "generation_batch_numbers": whole_number("~batches"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    "ppo_epochs": whole_number("rl.epochs"),
    "max_prompt_seq_len": whole_number("rollout.prompt_length"),
    "max_answer_seq_len": whole_number("rollout.response_length"),
    "enable_hybrid_engine": switch("rollout.engine", "deepspeed", "transformers"),
    "inference_tp_size": unless(1, why="a hybrid engine that cuts the gathered model"),
    "actor_zero_stage": whole_number("~actor_stage"),
    "critic_zero_stage": whole_number("~critic_stage"),
    "offload": switch("~offload"),
    "offload_reference_model": switch("~offload_reference"),
    "actor_gradient_checkpointing": switch("recompute", "full", "none"),
    "critic_gradient_checkpointing": switch("roles.critic.recompute", "full", "none"),
    "actor_lora_dim": whole_number("~actor_lora"),
    "critic_lora_dim": whole_number("~critic_lora"),
    "dtype": word("dtype", {"fp16": "float16", "bf16": "bfloat16"}),
    "enable_ema": unless("false", why="a moving average of the actor"),
}


def train_config(stage: int, *, offload: bool) -> dict[str, Any]:
    """What it configures for a model that is trained (dschat/utils/ds_utils.py, get_train_ds_config)."""
    device = "cpu" if offload else "none"
    zero = {"stage": stage, "overlap_comm": True, "offload_param": {"device": device}, "offload_optimizer": {"device": device}}
    zero |= {"stage3_param_persistence_threshold": 1e4, "stage3_max_live_parameters": 3e7, "stage3_prefetch_bucket_size": 3e7}
    return {"zero_optimization": {**zero, "memory_efficient_linear": False}, "fp16": {"enabled": True}, "gradient_clipping": 1.0}


def eval_config(stage: int, *, offload: bool) -> dict[str, Any]:
    """And for one that is not (get_eval_ds_config): below stage 3 it is whole, and nothing of it goes to the host (rlhf_engine.py, _init_ref)."""
    whole = stage < 3
    zero: dict[str, Any] = {"stage": 0 if whole else 3, "stage3_param_persistence_threshold": 1e4, "memory_efficient_linear": False}
    zero |= {} if whole else {"offload_param": {"device": "cpu" if offload else "none"}}
    return {"zero_optimization": zero, "fp16": {"enabled": True}, "gradient_clipping": 1.0}


def finish(facts: Facts) -> None:
    """Four models, each with its stage."""
    low = "bf16" if facts.get("dtype") == "bfloat16" else "fp16"
    stages = {who: facts.get(f"~{who}_stage", 0) for who in ("actor", "critic")}
    offload = facts.get("~offload", False)
    configs = {
        "sharding.deepspeed": train_config(stages["actor"], offload=offload),
        "roles.critic.sharding.deepspeed": train_config(stages["critic"], offload=offload),
        "roles.reference.sharding.deepspeed": eval_config(stages["actor"], offload=facts.get("~offload_reference", False)),
        "roles.reward.sharding.deepspeed": eval_config(stages["critic"], offload=offload),
    }
    for name, config in configs.items():
        config[low] = config.pop("fp16")
        facts.put(name, config, facts.where("~actor_stage", "~critic_stage", "~offload", "~offload_reference"))
    facts.put("sharding.engine", "deepspeed", VERSION)
    facts.put("task", "ppo", facts.where("model"))
    facts.default("rl.framework", "deepspeed-chat", VERSION)
    facts.default("dtype", "float16", VERSION)
    facts.default("roles.critic.recompute", "none", VERSION)
    if "~critic" in facts.found:
        for role in ("critic", "reward"):
            facts.put(f"roles.{role}.model", facts.get("~critic"), facts.where("~critic"))
    for role, place in (("actor", "lora"), ("critic", "roles.critic.lora")):
        if facts.get(f"~{role}_lora", 0) > 0:
            facts.put(f"{place}.r", facts.get(f"~{role}_lora"), facts.where(f"~{role}_lora"))
    if facts.get("~actor_lora", 0) > 0:
        facts.put("~lora", value=True, where=facts.where("~actor_lora"))
    if "~generated" in facts.found:
        facts.put("rollout.micro_batch", facts.get("~generated"), facts.where("~generated"))
        facts.put("rollout.prompts", facts.get("~generated") * facts.get("~batches", 1), facts.where("~generated", "~batches"))
        facts.default("micro_batch", facts.get("~generated"), VERSION)


FORMAT = Format(
    name="deepspeed_chat",
    title="DeepSpeed-Chat, step 3",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "actor_* critic_* data_* *learning_rate lr_scheduler_type num_warmup_steps num_train_epochs seed deepspeed output_dir local_rank global_rank "
        "num_padding_at_beginning disable_*_dropout print_answers* enable_tensorboard tensorboard_path unsupervised_* max_train_* release_inference_cache "
        "unpin_actor_parameters tp_gather_partition_size align_overflow kl_ctl gamma lam cliprange* compute_fp32_loss enable_test_mode test_stop_step "
        "enable_mixed_precision_lora only_optimize_lora upload *_weight_decay add_eot_token"
    ),
    defaults={"optimizer": "adamw_torch_fused", "micro_batch": 16, "recompute": "none", "lora.target_modules": "all-linear"},
    finish=finish,
    order=11,
    notes="The reference's offload has an effect at stage 3 only: below, its DeepSpeed configuration says stage 0, and it is whole on every card.",
)  # fmt: skip
