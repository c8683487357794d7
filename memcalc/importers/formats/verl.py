"""verl: its YAML and its Hydra overrides. The actor is what trains; what generates shares the cards with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, reinforcement
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, when, whole_number, word

VERSION = "verl 0.6"
ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.ref.", "actor_rollout_ref.rollout."
HELD: dict[str, Rule] = {
    "enforce_eager": unless("false"),
    "max_num_batched_tokens": unless(8192),
    "max_num_seqs": unless(256),
    "dtype": unless("bfloat16"),
    "max_model_len": unless(),
    "layered_summon": unless("false"),
    "data_parallel_size": unless(1),
    "pipeline_model_parallel_size": unless(1),
}
"""Keys of what generates that memcalc has no key for there, with their defaults."""
TASKS = {"gae": "ppo", "rloo": "rloo", "reinforce_plus_plus": "reinforce++", "reinforce_plus_plus_baseline": "reinforce++"}
"""By the estimator of advantages; all others are kinds of GRPO."""
ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf": "transformers"}


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``actor_rollout_ref``; a file of one of its parts by verl's classes."""
    target = str(keys.get("_target_", ""))
    return "actor_rollout_ref" in keys or any(key.startswith("actor_rollout_ref.") for key in keys) or target.startswith("verl.")


def _part(_facts: Facts, entry: Entry) -> None:
    raise InputError(f"is one part of verl's configuration ({entry.value}); give the whole, or the command", where=entry.where)


def _algorithm(facts: Facts, entry: Entry) -> None:
    facts.put("task", TASKS.get(entry.word, "grpo"), entry.where)


def _put_away(role: str, what: str) -> Rule:
    """On the host between phases (utils/fsdp_utils.py, offload_fsdp_model_to_cpu and offload_fsdp_optimizer)."""
    return switch(f"roles.{role}.idle.{what}", "cpu", None)


def _kl(place: str) -> Rule:
    return switch("rl.kl", place, None)


def _length(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        facts.put(name, entry.number, entry.where)

    return write


def _size(facts: Facts, entry: Entry) -> None:
    if entry.number > 0:
        facts.put("~dp_shard", entry.number, entry.where)


KEYS: dict[str, Rule] = {
    "_target_": _part,
    "actor_rollout_ref.model.path": "model",
    "actor_rollout_ref.model.enable_gradient_checkpointing": switch("recompute", "full", "none"),
    "actor_rollout_ref.model.enable_activation_offload": switch("offload.activations", "cpu", None),
    "actor_rollout_ref.model.lora_rank": whole_number("~lora_rank"),
    "actor_rollout_ref.model.target_modules": lambda facts, entry: facts.put("lora.target_modules", entry.value, entry.where),
    "actor_rollout_ref.model.use_remove_padding": switch("~packing"),
    "actor_rollout_ref.model.use_liger": when("", None),
    "actor_rollout_ref.model.use_fused_kernels": when("loss", "fused_linear", then="its fused kernels"),
    f"{ACTOR}strategy": lambda facts, entry: facts.put("~strategy", entry.word, entry.where),
    f"{ACTOR}ppo_micro_batch_size_per_gpu": whole_number("micro_batch"),
    f"{ACTOR}ppo_micro_batch_size": whole_number("~micro_total"),
    f"{ACTOR}ppo_mini_batch_size": whole_number("~mini_batch"),
    f"{ACTOR}use_dynamic_bsz": switch("~dynamic"),
    f"{ACTOR}ppo_max_token_len_per_gpu": whole_number("~token_len"),
    f"{ACTOR}ppo_epochs": whole_number("rl.epochs"),
    f"{ACTOR}use_kl_loss": _kl("loss"),
    f"{ACTOR}ulysses_sequence_parallel_size": unless(1, why="sequences split over ranks (Ulysses)"),
    f"{ACTOR}entropy_from_logits_with_chunking": switch("rl.entropy", "chunked", None),
    f"{ACTOR}fsdp_config.param_offload": _put_away("actor", "params"),
    f"{ACTOR}fsdp_config.optimizer_offload": _put_away("actor", "optimizer"),
    f"{ACTOR}fsdp_config.offload_policy": switch("offload.params", "cpu", None),
    f"{ACTOR}fsdp_config.reshard_after_forward": "sharding.reshard_after_forward",
    f"{ACTOR}fsdp_config.fsdp_size": _size,
    f"{ACTOR}fsdp_config.model_dtype": "dtype",
    f"{ACTOR}fsdp_config.dtype": "autocast",
    f"{ACTOR}megatron.tensor_model_parallel_size": whole_number("~megatron_tp"),
    f"{ACTOR}megatron.pipeline_model_parallel_size": whole_number("~megatron_pp"),
    f"{ACTOR}megatron.*offload": unless("false"),
    f"{REF}fsdp_config.param_offload": _put_away("reference", "params"),
    f"{REF}log_prob_micro_batch_size_per_gpu": whole_number("rl.score_micro_batch"),
    **{f"{ROLLOUT}{name}": rule for name, rule in HELD.items()},
    f"{ROLLOUT}prompt_length": whole_number("~prompt"),
    f"{ROLLOUT}response_length": whole_number("~response"),
    f"{ROLLOUT}name": word("rollout.engine", ENGINES, otherwise="leave"),
    f"{ROLLOUT}n": whole_number("rollout.num_generations"),
    f"{ROLLOUT}gpu_memory_utilization": "rollout.gpu_memory_utilization",
    f"{ROLLOUT}tensor_model_parallel_size": whole_number("rollout.tensor_parallel_size"),
    f"{ROLLOUT}free_cache_engine": switch("rollout.sleep_level", 1, 0),
    f"{ROLLOUT}update_weights_bucket_megabytes": whole_number("rollout.bucket_mb"),
    f"{ROLLOUT}log_prob_micro_batch_size_per_gpu": whole_number("rl.score_micro_batch"),
    f"{ROLLOUT}quantization": unless(),
    "data.max_prompt_length": _length("~prompt"),
    "data.max_response_length": _length("~response"),
    "data.train_batch_size": whole_number("~train_batch"),
    "algorithm.adv_estimator": _algorithm,
    "algorithm.use_kl_in_reward": _kl("reward"),
    "trainer.n_gpus_per_node": whole_number("~gpus_per_node"),
    "trainer.nnodes": whole_number("~nodes"),
    "reward_model.enable": switch("~reward"),
    "reward.reward_model.enable": switch("~reward"),
    "reward_model.model.path": "~reward_model",
    "reward.reward_model.model_path": "~reward_model",
    "critic.model.path": "roles.critic.model",
    "critic.ppo_micro_batch_size_per_gpu": whole_number("roles.critic.micro_batch"),
    "critic.model.fsdp_config.param_offload": _put_away("critic", "params"),
    "critic.model.fsdp_config.optimizer_offload": _put_away("critic", "optimizer"),
    "critic.fsdp_config.param_offload": _put_away("critic", "params"),
    "critic.fsdp_config.optimizer_offload": _put_away("critic", "optimizer"),
}


def finish(facts: Facts) -> None:
    """Lengths, adapters, engine, and how many sequences a pass takes."""
    if {"~prompt", "~response"} <= set(facts.found):
        facts.put("seq_len", facts.get("~prompt") + facts.get("~response"), facts.where("~prompt", "~response"))
        facts.put("rollout.prompt_length", facts.get("~prompt"), facts.where("~prompt"))
    if facts.get("~dynamic", False):
        facts.put("rl.max_token_len", facts.get("~token_len", 16384), facts.where("~token_len", "~dynamic"))
    _roles(facts)
    adapters.ranked(facts, VERSION)
    strategy = facts.get("~strategy", "fsdp")
    if strategy == "megatron":
        facts.put("code", "megatron", facts.where("~strategy"))
        facts.put("~engine", "megatron", facts.where("~strategy"))
        for degree in ("tp", "pp"):
            if f"~megatron_{degree}" in facts.found:
                facts.put(f"sharding.{degree}", facts.get(f"~megatron_{degree}"), facts.where(f"~megatron_{degree}"))
    else:
        facts.put("~engine", "fsdp2" if strategy == "fsdp2" else "fsdp1", facts.where("~strategy"))
    for name, value in {
        "dtype": "float32",
        "autocast": "bfloat16",
        "optimizer": "adamw_torch",
        "recompute": "full",
        "sharding.reduce_dtype": "float32",
        "task": "ppo",
        "rl.framework": "verl",
    }.items():
        facts.default(name, value, VERSION)
    if "micro_batch" not in facts.found:
        facts.default("micro_batch", 1, VERSION)


def _roles(facts: Facts) -> None:
    """A critic only where advantages are estimated with one, a reference only where a KL term asks for it; how many prompts a card has."""
    for role, there in (("critic", facts.get("task", "ppo") == "ppo"), ("reference", "rl.kl" in facts.found)):
        for name in [name for name in facts.found if name.startswith(f"roles.{role}.") and not there]:
            del facts.found[name]
    if not facts.get("~reward", False):
        facts.default("roles.reward", None, f"{VERSION}, whose rewards are functions")
    elif facts.get("~reward_model") is not None:
        facts.put("roles.reward.model", facts.get("~reward_model"), facts.where("~reward_model"))
    if facts.get("roles.critic.model") == facts.get("model"):
        facts.found.pop("roles.critic.model", None)
    reinforcement.shared_prompts(facts, "~train_batch")


FORMAT = Format(
    name="verl",
    title="verl YAML and Hydra overrides",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "actor_rollout_ref.* critic.* data.* algorithm.* trainer.* reward_model.* reward.* custom_reward_function.* ray_kwargs.* ray_init.* "
        "global_profiler.* transfer_queue.* distillation.* sandbox_fusion.* skip.* defaults hydra.* actor_rollout_ref critic model_engine rollout.*"
    ),
    finish=finish,
    order=12,
    notes="Keys below `actor_rollout_ref.actor`, `.rollout` and `.ref` that the table does not name are ignored: schedules, clipping, logging.",
)  # fmt: skip
