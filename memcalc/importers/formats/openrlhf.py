"""OpenRLHF's flags, dotted (since April 2026) and plain; also as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers import adapters, liger, reinforcement
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import attention, names, switch, unless, whole_number, word

VERSION = "OpenRLHF 0.10"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its sections beside each other."""
    return sum(key in keys or any(name.startswith(f"{key}.") for name in keys) for key in ("ds", "actor", "vllm", "train")) > 1


def _config(path: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        facts.put(f"~ds.{path}", entry.value, entry.where)

    return write


def _offload(facts: Facts, entry: Entry) -> None:
    if entry.is_on:
        facts.put("~ds.offload", value=True, where=entry.where)


ESTIMATORS = {
    "gae": "ppo", "group_norm": "grpo", "dr_grpo": "grpo", "rloo": "rloo", "reinforce": "reinforce++", "reinforce_baseline": "reinforce++",
}  # fmt: skip
"""Tasks by how advantages are estimated."""

BOTH: dict[str, Rule] = {
    "ds.zero_stage": whole_number("~ds.stage"),
    "ds.adam_offload": _offload,
    "ds.zpg": _config("zpg"),
    "ds.grad_accum_dtype": _config("grad_accum_dtype"),
    "ds.overlap_comm": switch("~ds.overlap"),
    "ds.param_dtype": "~mixed_precision",
    "ds.tensor_parallel_size": whole_number("sharding.tp"),
    "ds.ring_attn_size": unless(1, why="sequences split over ranks in a ring"),
    "ds.attn_implementation": attention,
    "ds.use_liger_kernel": liger.without_labels,
    "train.micro_batch_size": whole_number("micro_batch"),
    "train.batch_size": whole_number("~global_batch"),
    "ds.enable_sleep": switch("~sleeps"),
    "train.dynamic_batch_enable": switch("~dynamic"),
    "train.max_tokens_per_gpu": whole_number("~tokens"),
    "data.max_len": whole_number("seq_len"),
    "model.model_name_or_path": "model",
    "actor.model_name_or_path": "model",
    "model.gradient_checkpointing_enable": switch("recompute", "full", "none"),
    "actor.gradient_checkpointing_enable": switch("recompute", "full", "none"),
    "model.attn_implementation": attention,
    "model.lora_rank": whole_number("~lora_rank"),
    "model.load_in_4bit": switch("~bits", 4, None),
    "lora.rank": whole_number("~lora_rank"),
    "actor.num_gpus_per_node": whole_number("~gpus_per_node"),
    "actor.num_nodes": whole_number("~nodes"),
    "ref.offload": switch("~ref_offload"),
    "reward.model_name_or_path": "~reward",
    "critic.model_name_or_path": "roles.critic.model",
    "vllm.num_engines": whole_number("~engines"),
    "vllm.tensor_parallel_size": whole_number("rollout.tensor_parallel_size"),
    "vllm.gpu_memory_utilization": "rollout.gpu_memory_utilization",
    "vllm.enforce_eager": switch("serving.enforce_eager"),
    "vllm.enable_sleep": switch("rollout.sleep_level", 1, 0),
    "train.colocate_all": switch("~colocate"),
    "data.prompt_max_len": whole_number("rollout.prompt_length"),
    "rollout.generate_max_len": whole_number("rollout.response_length"),
    "rollout.n_samples_per_prompt": whole_number("rollout.num_generations"),
    "rollout.batch_size": whole_number("~rollout_batch"),
    "rollout.micro_batch_size": whole_number("rl.score_micro_batch"),
    "train.max_epochs": whole_number("rl.epochs"),
    "algo.advantage.estimator": word("~algorithm", ESTIMATORS),
    "algo.kl.init_coef": lambda facts, entry: facts.put("rl.kl", "none" if entry.real == 0 else "reward", entry.where),
    "algo.kl.use_loss": switch("rl.kl", "loss", None),
}
OLD: dict[str, Rule] = {
    **{key.partition(".")[2]: rule for key, rule in BOTH.items() if key.startswith(("ds.", "data."))},
    "pretrain": "model",
    "micro_train_batch_size": whole_number("micro_batch"),
    "train_batch_size": whole_number("~global_batch"),
    "bf16": switch("~mixed_precision", "bf16", None),
    "flash_attn": switch("attention", "flash_attention_2", None),
    "gradient_checkpointing": switch("recompute", "full", "none"),
    "lora_rank": whole_number("~lora_rank"),
    "load_in_4bit": switch("~bits", 4, None),
    "actor_num_gpus_per_node": whole_number("~gpus_per_node"),
    "actor_num_nodes": whole_number("~nodes"),
    **{key.replace(".", "_"): rule for key, rule in BOTH.items() if key.startswith("vllm.")},
    "deepspeed_enable_sleep": switch("~sleeps"),
    "use_dynamic_batch": switch("~dynamic"),
    "train_max_tokens_per_gpu": whole_number("~tokens"),
    "colocate_all_models": switch("~colocate"),
    "colocate_actor_ref": switch("~colocate_ref"),
    "ref_offload": BOTH["ref.offload"],
    "ref_reward_offload": BOTH["ref.offload"],
    "reward_pretrain": "~reward",
    "critic_pretrain": "roles.critic.model",
    "prompt_max_len": BOTH["data.prompt_max_len"],
    "generate_max_len": BOTH["rollout.generate_max_len"],
    "n_samples_per_prompt": BOTH["rollout.n_samples_per_prompt"],
    "rollout_batch_size": BOTH["rollout.batch_size"],
    "micro_rollout_batch_size": BOTH["rollout.micro_batch_size"],
    "advantage_estimator": BOTH["algo.advantage.estimator"],
    "init_kl_coef": BOTH["algo.kl.init_coef"],
    "use_kl_loss": BOTH["algo.kl.use_loss"],
}
KEYS: dict[str, Rule] = {**OLD, **BOTH}


def finish(facts: Facts) -> None:
    """The DeepSpeed configuration that it builds, with "auto" that nobody fills in."""
    stage = facts.get("~ds.stage", 2)
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": facts.get("~ds.overlap", False), "round_robin_gradients": True}
    zero |= {"zero_hpz_partition_size": int(facts.get("~ds.zpg"))} if "~ds.zpg" in facts.found else {}
    config: dict[str, Any] = {"zero_optimization": zero, "bf16": {"enabled": True}, "gradient_clipping": 1.0}
    if facts.get("~ds.offload", False):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if "~ds.grad_accum_dtype" in facts.found:
        config["data_types"] = {"grad_accum_dtype": facts.get("~ds.grad_accum_dtype")}
    facts.put("~deepspeed", config, facts.where("~ds.stage", "~ds.offload"))
    facts.put("~engine", "deepspeed", facts.where("~ds.stage"))
    facts.put("~auto_by", "deepspeed", VERSION)
    facts.default("~mixed_precision", "bf16", VERSION)
    adapters.ranked(facts)
    _cast(facts)
    for name in [name for name in facts.found if name.startswith("~ds.")]:
        del facts.found[name]


def _cast(facts: Facts) -> None:
    """Of reinforcement learning, who is there, and where."""
    if facts.get("task") == "ppo" and "~algorithm" in facts.found:
        facts.put("task", facts.get("~algorithm"), facts.where("~algorithm"))
    if facts.get("task") not in ESTIMATORS.values():
        for name in [name for name in facts.found if name.startswith(("rollout.", "rl.", "roles.", "serving."))]:
            del facts.found[name]
        return
    facts.default("rl.framework", "openrlhf", VERSION)
    there = _there(facts)
    _place(facts, there)
    if facts.get("~dynamic", False):
        facts.put("rl.max_token_len", facts.get("~tokens", 16192), facts.where("~tokens", "~dynamic"))
    if facts.get("~sleeps", False):  # states of optimizers alone (utils/deepspeed/deepspeed_utils.py, offload_deepspeed_states)
        for role in ("actor", *(there & {"critic"})):
            facts.put(f"roles.{role}.idle.optimizer", "cpu", facts.where("~sleeps"))
    if facts.get("~engines") == 0:
        facts.put("rollout.engine", "transformers", facts.where("~engines"))
        facts.found.pop("serving.enforce_eager", None)
    reinforcement.shared_prompts(facts, "~rollout_batch")


def _there(facts: Facts) -> set[str]:
    """The models beside the actor."""
    there = set()
    if facts.get("task") == "ppo":
        there.add("critic")
    else:
        facts.found.pop("roles.critic.model", None)
    if "~reward" in facts.found and not str(facts.get("~reward")).startswith("http"):
        there.add("reward")
        facts.put("roles.reward.model", facts.get("~reward"), facts.where("~reward"))
    elif facts.get("task") == "ppo":
        facts.put("roles.reward", None, "rewards come from elsewhere")
    if facts.get("rl.kl") != "none":
        there.add("reference")
        if facts.get("~ref_offload", False) and facts.get("~ds.stage", 2) == 3:
            facts.put("roles.reference.offload.params", "cpu", facts.where("~ref_offload"))
    return there


def _place(facts: Facts, there: set[str]) -> None:
    """Models and engines have cards of their own unless all are colocated (cli/train_ppo_ray.py)."""
    if facts.get("~colocate", False):
        return
    beside = {"reference"} if facts.get("~colocate_ref", False) else set()
    for role in sorted(there - beside):
        facts.default(f"roles.{role}.cards", "other", VERSION)
    facts.default("rollout.cards", "other", VERSION)


FORMAT = Format(
    name="openrlhf",
    title="OpenRLHF flags",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "train.* data.* logger.* ckpt.* save* *learning_rate *lr* dataset* input_key output_key input_template max_epochs max_samples logging_steps "
        "eval_steps wandb* use_wandb* model.* actor.* critic.* ds.* reward.* ref.* vllm.* algo.* rollout.* ray.* seed packing_samples "
        "apply_chat_template l2 adam_betas zero_stage_* local_rank lora_alpha lora_dropout target_modules max_norm"
    ),
    defaults={"micro_batch": 1, "recompute": "none", "optimizer": "adamw_torch", "lora.target_modules": "all-linear"},
    finish=finish,
    order=45,
    notes='It builds its DeepSpeed configuration itself, where "auto" means DeepSpeed\'s own default; with its own optimizer (FusedAdam) outside offload.',
)  # fmt: skip
