"""NeMo-RL's YAML (DTensor or Megatron workers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import reinforcement
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import Write, each, names, switch, whole_number, word

VERSION = "NeMo-RL 0.5"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf": "transformers", "megatron": "transformers"}
SECTIONS = (
    *("policy", "grpo", "ppo", "dpo", "sft", "rm", "distillation", "value", "loss_fn", "data", "data_plane", "env", "cluster", "checkpointing", "logger"),
    *("async_rl", "generation", "teacher"),
)
"""Any of which may stand alone beside ``defaults``: a recipe holds what it overrides."""


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``policy`` beside an algorithm, or what a recipe overrides of another file."""
    over = keys.get("defaults")
    bases = [over] if isinstance(over, str) else over if isinstance(over, list) else []
    recipe = any(isinstance(base, str) and base.endswith((".yaml", ".yml")) for base in bases) and any(key in keys for key in SECTIONS)
    return recipe or ("policy" in keys and any(key in keys for key in ("grpo", "ppo", "generation", "dpo", "sft", "rm", "distillation", "loss_fn", "cluster")))


def _below(section: str) -> dict[str, Rule]:
    degrees = (
        {"tensor": "tp", "context": "cp"}
        if section == "dtensor"
        else {"tensor_model": "tp", "pipeline_model": "pp", "context": "cp", "expert_model": "ep", "expert_tensor": "etp"}
    )
    place = f"policy.{section}_cfg."
    return {
        f"{place}enabled": switch(f"~{section}"),
        f"{place}activation_checkpointing": switch(f"~{section}.recompute"),
        f"{place}sequence_parallel": switch(f"~{section}.sp"),
        **{f"{place}{name}_parallel_size": whole_number(f"~{section}.{short}") for name, short in degrees.items()},
    }


def _algorithm(name: str) -> Write:
    return lambda facts, entry: facts.put("task", name, entry.where)


def _distillation(facts: Facts, entry: Entry) -> None:
    facts.put("task", "distill", entry.where)
    facts.leave(entry, "what the student generates to learn from is not counted; a step over given answers is")


KEYS: dict[str, Rule] = {
    "policy.model_name": "model",
    "policy.train_micro_batch_size": whole_number("micro_batch"),
    "policy.train_global_batch_size": whole_number("~global_batch"),
    "policy.max_total_sequence_length": whole_number("seq_len"),
    "policy.precision": "~load_dtype",
    **_below("dtensor"),
    **_below("megatron"),
    "policy.dtensor_cfg.cpu_offload": switch("offload.params", "cpu", None),
    "policy.dtensor_cfg.lora_cfg.enabled": switch("~lora"),
    "policy.dtensor_cfg.lora_cfg.dim": whole_number("lora.r"),
    "policy.dtensor_cfg.lora_cfg.match_all_linear": switch("lora.target_modules", "all-linear", None),
    "policy.megatron_cfg.peft.enabled": switch("~megatron.lora"),
    "policy.logprob_batch_size": whole_number("rl.score_micro_batch"),
    "policy.generation.backend": word("rollout.engine", ENGINES, otherwise="leave"),
    "policy.generation.colocated.enabled": switch("rollout.cards", "same", "other"),
    "policy.generation.vllm_cfg.gpu_memory_utilization": "rollout.gpu_memory_utilization",
    "policy.generation.vllm_cfg.tensor_parallel_size": whole_number("rollout.tensor_parallel_size"),
    "grpo.num_generations_per_prompt": each(_algorithm("grpo"), whole_number("rollout.num_generations")),
    "grpo.num_prompts_per_step": each(_algorithm("grpo"), whole_number("~prompts")),
    "ppo.num_generations_per_prompt": each(_algorithm("ppo"), whole_number("rollout.num_generations")),
    "ppo.num_prompts_per_step": each(_algorithm("ppo"), whole_number("~prompts")),
    "ppo.ppo_epochs": each(_algorithm("ppo"), whole_number("rl.epochs")),
    "value.model_name": "roles.critic.model",
    "value.train_micro_batch_size": whole_number("roles.critic.micro_batch"),
    "value.dtensor_cfg.activation_checkpointing": switch("roles.critic.recompute", "submodules", "none"),
    "rm.max_num_epochs": _algorithm("reward"),
    "rm.max_num_steps": _algorithm("reward"),
    "distillation.num_prompts_per_step": _distillation,
    "distillation.num_generations_per_prompt": _distillation,
    "teacher.model_name": "roles.teacher.model",
    "loss_fn.reference_policy_kl_penalty": lambda facts, entry: facts.put("rl.kl", "none" if float(entry.value or 0) == 0 else "loss", entry.where),
    "dpo.max_num_epochs": _algorithm("dpo"),
    "cluster.gpus_per_node": whole_number("~gpus_per_node"),
    "cluster.num_nodes": whole_number("~nodes"),
}


def finish(facts: Facts) -> None:
    """Which workers train, and in what they hold weights: fp32, computing in the precision of the file."""
    megatron = facts.get("~megatron", False)
    section = "megatron" if megatron else "dtensor"
    if megatron and facts.get("~dtensor", False):
        raise InputError("enables megatron_cfg and dtensor_cfg; one of them trains", where=facts.where("~megatron"))
    for name in ("~dtensor.sp", "sharding.sp"):
        if not megatron and facts.get(name, False):
            facts.unused.append(f"{facts.found.pop(name).where}: sequence parallelism beside DTensor's tensor parallelism; norms are counted whole")
    for degree in ("tp", "pp", "cp", "ep", "etp", "sp"):
        if f"~{section}.{degree}" in facts.found:
            facts.put(f"sharding.{degree}", facts.get(f"~{section}.{degree}"), facts.where(f"~{section}.{degree}"))
    if facts.get(f"~{section}.recompute", False):
        facts.put("recompute", "full" if megatron else "submodules", facts.where(f"~{section}.recompute"))
    low = facts.get("~load_dtype", "bfloat16")
    if megatron:
        facts.put("code", "megatron", facts.where("~megatron"))
        facts.put("~engine", "megatron", facts.where("~megatron"))
        facts.put("dtype", low, facts.where("~load_dtype"))
        facts.default("sharding.use_distributed_optimizer", value=True, framework=VERSION)
    else:
        facts.default("~engine", "fsdp2", VERSION)
        if "~dtensor" in facts.found:
            facts.put("dtype", "float32", f"{VERSION} holds weights in fp32")
            facts.put("autocast", low, facts.where("~load_dtype"))
    facts.default("optimizer", "adamw_torch", VERSION)
    _cast(facts)


def _cast(facts: Facts) -> None:
    """Of GRPO and PPO, what generates, and what of the policy makes room for it (algorithms/grpo.py, offload_before_refit and offload_after_refit)."""
    task = facts.get("task")
    kept = {"ppo": ("rollout.", "rl.", "roles.critic."), "grpo": ("rollout.", "rl."), "distill": ("roles.teacher.",)}.get(str(task), ())
    for name in [name for name in facts.found if name.startswith(("rollout.", "rl.", "roles.")) and not name.startswith(kept)]:
        del facts.found[name]
    if task not in ("grpo", "ppo"):
        return
    if task == "ppo":
        facts.default("roles.reward", None, f"{VERSION}, whose rewards are functions")
        if facts.get("roles.critic.model") == facts.get("model"):
            facts.found.pop("roles.critic.model", None)
    facts.default("rl.framework", "nemo-rl", VERSION)
    reinforcement.shared_prompts(facts, "~prompts")


FORMAT = Format(
    name="nemo_rl",
    title="NeMo-RL YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "policy.* grpo.* ppo.* dpo.* sft.* rm.* distillation.* value.* loss_fn.* value_loss_fn.* "
        "checkpoint* data.* data env.* logger.* cluster.* reward_penalties.* recipe model.* "
        "loss_fn env teacher.* data_plane.*"
    ),
    defaults={"micro_batch": 1},
    finish=finish,
    order=13,
    bases="defaults",
    notes="The files that `defaults` names are merged, the later winning, before references are followed. DTensor workers checkpoint norms, "
    "attention and network of each layer one by one: `recompute: submodules`.",
)  # fmt: skip
