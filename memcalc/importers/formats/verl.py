"""verl: its YAML and its Hydra overrides. The actor is what trains; what generates shares the cards with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, liger, reinforcement
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import _rl_megatron as megatron
from memcalc.importers.rules import Write, each, names, switch, unless, whole_number, word
from memcalc.importers.source import Source

VERSION = "verl 0.6"
ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.ref.", "actor_rollout_ref.rollout."
ADAPTERS = "actor_rollout_ref.model.lora."
HELD: dict[str, Rule] = {
    "enforce_eager": switch("serving.enforce_eager"),
    "max_num_batched_tokens": whole_number("serving.max_num_batched_tokens"),
    "max_num_seqs": whole_number("serving.max_num_seqs"),
    "max_model_len": whole_number("serving.max_model_len"),
    "dtype": unless("bfloat16"),
    "layered_summon": unless("false"),
    "data_parallel_size": unless(1),
    "expert_parallel_size": unless(1),
    "pipeline_model_parallel_size": unless(1),
}
"""What a server is told, and keys of what generates that memcalc has no key for there, with their defaults."""
TASKS = {"gae": "ppo", "rloo": "rloo", "reinforce_plus_plus": "reinforce++", "reinforce_plus_plus_baseline": "reinforce++"}
"""By the estimator of advantages; all others are kinds of GRPO."""
ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf": "transformers"}


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``actor_rollout_ref``; a file of one of its parts by verl's classes."""
    target = str(keys.get("_target_", ""))
    return "actor_rollout_ref" in keys or any(key.startswith("actor_rollout_ref.") for key in keys) or target.startswith("verl.")


def prepare(source: Source) -> Source:
    """Hydra's ``key=null`` as what it is."""
    return source._replace(data={key: None if value == "null" else value for key, value in source.data.items()})


def _part(_facts: Facts, entry: Entry) -> None:
    raise InputError(f"is one part of verl's configuration ({entry.value}); give the whole, or the command", where=entry.where)


def _algorithm(facts: Facts, entry: Entry) -> None:
    facts.put("task", TASKS.get(entry.word, "grpo"), entry.where)


def _put_away(role: str, what: str) -> Write:
    """On the host between phases (utils/fsdp_utils.py, offload_fsdp_model_to_cpu and offload_fsdp_optimizer)."""
    return switch(f"roles.{role}.idle.{what}", "cpu", None)


def _put_away_buffers(role: str) -> Rule:
    """Under Megatron, buffers of gradients go with the weights (utils/megatron_utils.py, offload_megatron_model_to_cpu)."""
    return megatron.held(each(_put_away(role, "params"), _put_away(role, "gradients")))


def _of_megatron(place: str, role: str) -> dict[str, Rule]:
    """What goes to the host between phases; how a critic is cut is how the actor is, since their process groups are one."""
    return {
        f"{place}megatron.param_offload": _put_away_buffers(role),
        f"{place}megatron.optimizer_offload": megatron.held(_put_away(role, "optimizer")),
    }


def _critic(name: str, rule: Rule) -> Rule:
    """An option of the transformer that a critic has of its own."""

    def write(facts: Facts, entry: Entry) -> None:
        inner = Facts()
        assert callable(rule)
        rule(inner, entry)
        if name in inner.found:
            facts.put(f"roles.critic.{name}", inner.found[name].value, entry.where)

    return megatron.held(write)


def _config(facts: Facts, entry: Entry) -> None:
    if "megatron" in entry.word:
        facts.default("~strategy", "megatron", entry.value)


def _entropy(facts: Facts, entry: Entry) -> None:
    facts.put("rl.entropy_loss", entry.real != 0, entry.where)


def _kl(place: str) -> Rule:
    return switch("rl.kl", place, None)


def _length(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        facts.put(name, entry.number, entry.where)

    return write


def sequence_ranks(facts: Facts, entry: Entry) -> None:
    """Sequences split over ranks (Ulysses), which share the states with all others."""
    if entry.number > 1:
        facts.put("~sequence_ranks", entry.number, entry.where)
        facts.put("sharding.cp", entry.number, entry.where)


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
    "actor_rollout_ref.model.use_remove_padding": switch("rl.remove_padding"),
    "actor_rollout_ref.model.use_liger": liger.without_labels,
    "actor_rollout_ref.model.use_fused_kernels": switch("loss", "fused_linear", "cross_entropy"),
    "actor_rollout_ref.model.fused_kernel_options.impl_backend": unless("torch", why="under FSDP torch's chunks of 512 tokens are counted"),
    f"{ACTOR}strategy": lambda facts, entry: facts.put("~strategy", entry.word, entry.where),
    f"{ACTOR}ppo_micro_batch_size_per_gpu": whole_number("micro_batch"),
    f"{ACTOR}ppo_micro_batch_size": whole_number("~micro_total"),
    f"{ACTOR}ppo_mini_batch_size": whole_number("~mini_batch"),
    f"{ACTOR}use_dynamic_bsz": switch("~dynamic"),
    f"{ACTOR}ppo_max_token_len_per_gpu": whole_number("~token_len"),
    f"{ACTOR}ppo_epochs": whole_number("rl.epochs"),
    f"{ACTOR}use_kl_loss": _kl("loss"),
    f"{ACTOR}ulysses_sequence_parallel_size": sequence_ranks,
    f"{ACTOR}entropy_from_logits_with_chunking": switch("rl.entropy", "chunked", None),
    f"{ACTOR}fsdp_config.param_offload": _put_away("actor", "params"),
    f"{ACTOR}fsdp_config.optimizer_offload": _put_away("actor", "optimizer"),
    f"{ACTOR}fsdp_config.offload_policy": switch("offload.params", "cpu", None),
    f"{ACTOR}fsdp_config.reshard_after_forward": "sharding.reshard_after_forward",
    f"{ACTOR}fsdp_config.fsdp_size": _size,
    f"{ACTOR}fsdp_config.model_dtype": "dtype",
    f"{ACTOR}fsdp_config.dtype": "autocast",
    f"{ACTOR}entropy_coeff": _entropy,
    **megatron.options(
        f"{ACTOR}megatron.",
        transformer=f"{ACTOR}megatron.override_transformer_config.",
        optimizer=f"{ACTOR}optim.override_optimizer_config.",
        ddp=f"{ACTOR}megatron.override_ddp_config.",
    ),
    f"{ACTOR}megatron.dtype": megatron.held("dtype"),
    f"{ACTOR}megatron.vanilla_mbridge": megatron.held("~vanilla"),
    **_of_megatron(ACTOR, "actor"),
    **_of_megatron("critic.", "critic"),
    "critic.megatron.override_transformer_config.recompute_granularity": _critic("recompute", megatron.KEYS["recompute_granularity"]),
    f"{REF}megatron.param_offload": megatron.held(_put_away("reference", "params")),
    f"{ADAPTERS}rank": whole_number("~lora_rank"),
    f"{ADAPTERS}target_modules": megatron.adapted,
    f"{ADAPTERS}dropout": "lora.dropout",
    "config_name": _config,
    "model_engine": lambda facts, entry: facts.put("~strategy", entry.word, entry.where) if entry.word == "megatron" else None,
    f"{REF}fsdp_config.param_offload": _put_away("reference", "params"),
    f"{REF}log_prob_micro_batch_size_per_gpu": whole_number("rl.score_micro_batch"),
    **{f"{ROLLOUT}{name}": rule for name, rule in HELD.items()},
    f"{ROLLOUT}prompt_length": whole_number("~prompt"),
    f"{ROLLOUT}response_length": whole_number("~response"),
    f"{ROLLOUT}name": word("rollout.engine", ENGINES, otherwise="leave"),
    f"{ROLLOUT}n": whole_number("rollout.num_generations"),
    f"{ROLLOUT}gpu_memory_utilization": "rollout.gpu_memory_utilization",
    f"{ROLLOUT}tensor_model_parallel_size": whole_number("rollout.tensor_parallel_size"),
    "actor_rollout_ref.hybrid_engine": switch("rollout.cards", "same", "other"),
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
    strategy = facts.get("~strategy", "fsdp")
    if strategy == "megatron":
        _megatron(facts)
    else:
        megatron.drop(facts)
        facts.put("~engine", "fsdp2" if strategy == "fsdp2" else "fsdp1", facts.where("~strategy"))
        _replicas(facts, facts.get("~engine"))
    _batches(facts)
    if facts.get("~dynamic", False):
        tokens = facts.get("~token_len", 16384) * facts.get("sharding.cp", 1)
        facts.put("rl.max_token_len", tokens, facts.where("~token_len", "~dynamic"))
    _roles(facts)
    adapters.ranked(facts, VERSION)
    for name, value in (MEGATRON if strategy == "megatron" else FSDP).items():
        facts.default(name, value, VERSION)
    facts.default("task", "ppo", VERSION)
    facts.default("rl.framework", "verl", VERSION)
    if "micro_batch" not in facts.found:
        facts.default("micro_batch", 1, VERSION)
    _server(facts)


RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Of adapters, as vLLM makes room for them (utils/vllm/utils.py, get_vllm_max_lora_rank)."""


def _server(facts: Facts) -> None:
    """What is said in vLLM's words is for vLLM, where adapters have room of their own."""
    if facts.get("rollout.engine", "vllm") != "vllm":
        for name in [name for name in facts.found if name.startswith("serving.")]:
            del facts.found[name]
    elif facts.get("~lora_rank", 0) > 0:
        where = facts.where("~lora_rank")
        facts.put("serving.enable_lora", value=True, where=where)
        facts.put("serving.max_lora_rank", next((r for r in RANKS if r >= facts.get("~lora_rank")), RANKS[-1]), where)


def _batches(facts: Facts) -> None:
    """Micro-batches of an update, where sequences are counted: a mini-batch is one of prompts, spread over data-parallel ranks (workers/fsdp_workers.py)."""
    inner = facts.get("sharding.tp", 1) * facts.get("sharding.pp", 1) * facts.get("sharding.cp", 1)
    known = {"~mini_batch", "micro_batch", "~gpus_per_node"} <= set(facts.found)
    if not known or facts.get("~dynamic", False) or facts.cards % inner:
        return
    sequences = facts.get("~mini_batch") * facts.get("rollout.num_generations", 1) * inner // facts.cards
    facts.put("grad_accum", max(sequences // facts.get("micro_batch"), 1), facts.where("~mini_batch", "micro_batch"))


def _replicas(facts: Facts, engine: str) -> None:
    """A sharded group smaller than all cards has replicas (utils/fsdp_utils.py, create_device_mesh and get_sharding_strategy)."""
    shard, cards = facts.get("~dp_shard", 0), facts.cards
    if not shard or shard >= cards or cards % shard:
        facts.found.pop("~dp_shard", None)
        return
    if cards // facts.get("sharding.cp", 1) % (cards // shard):
        raise InputError(f"sharded groups of {shard} ranks beside sequences split over more (Ulysses) are not counted", where=facts.where("~dp_shard"))
    facts.put("~dp_replicate", cards // shard, facts.where("~dp_shard"))
    if engine == "fsdp1":
        facts.put("sharding.fsdp_sharding_strategy", "HYBRID_SHARD", facts.where("~dp_shard"))


FSDP = {
    "dtype": "float32", "autocast": "bfloat16", "optimizer": "adamw_torch", "recompute": "full", "attention": "flash_attention_2",
    "sharding.reduce_dtype": "float32", "rl.remove_padding": False,
}  # fmt: skip
MEGATRON = {
    "dtype": "bfloat16", "optimizer": "adamw_torch_fused", "recompute": "none", "attention": "flash_attention_2", "sharding.sp": True,
    "sharding.use_distributed_optimizer": True, "sharding.gradient_accumulation_fusion": False,
}  # fmt: skip
"""What its workers do where nothing is said (trainer/config/_generated_ppo_trainer.yaml, _generated_ppo_megatron_trainer.yaml)."""


def _megatron(facts: Facts) -> None:
    """Megatron's workers; checkpointing is what the transformer's own options say, and a reference is put away where the actor is."""
    where = facts.where("~strategy")
    for name in ("recompute", "autocast", "sharding.reshard_after_forward", "rl.entropy", "rl.remove_padding", "liger"):
        facts.found.pop(name, None)
    megatron.take(facts)
    facts.put("code", "megatron", where)
    facts.put("~engine", "megatron", where)
    if "roles.actor.idle.params" in facts.found:
        facts.default("roles.reference.idle.params", "cpu", f"{VERSION}, as the actor's")
    facts.default("roles.critic.recompute", "none", VERSION)
    if facts.get("lora.target_modules") is not None or facts.get("~lora_rank", 0) > 0:
        facts.default("lora.dtype", "bfloat16", VERSION)
    if facts.get("sharding.tp", 1) == 1:
        facts.override("sharding.sp", value=False, where=f"{VERSION} switches sequence parallelism off without tensor parallelism")


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
    if facts.get("~train_batch", 0) > 0:  # none: answers come as a stream
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
    prepare=prepare,
    finish=finish,
    order=12,
    notes="Keys below `actor_rollout_ref.actor`, `.rollout` and `.ref` that the table does not name are ignored: schedules, clipping, logging.",
)  # fmt: skip
