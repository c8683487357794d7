"""NeMo-RL's YAML (DTensor or Megatron workers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import reinforcement
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule, number
from memcalc.importers.format import Format
from memcalc.importers.formats import _rl_megatron as megatron
from memcalc.importers.rules import Write, each, names, switch, unless, when, whole_number, word

VERSION = "NeMo-RL 0.5"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf": "transformers", "megatron": "megatron"}
VALUE = "~value."
WORKERS = {
    "sharding.use_distributed_optimizer": True, "sharding.use_precision_aware_optimizer": True, "sharding.grad_reduce_in_bf16": True,
    "sharding.gradient_accumulation_fusion": False, "attention": "flash_attention_2", "optimizer": "adamw_torch_fused", "recompute": "none",
}  # fmt: skip
"""Of Megatron's workers, where nothing is said (examples/configs/grpo_math_1B.yaml)."""
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


def _dtensor() -> dict[str, Rule]:
    place = "policy.dtensor_cfg."
    return {
        f"{place}enabled": switch("~dtensor"),
        f"{place}activation_checkpointing": switch("~dtensor.recompute"),
        f"{place}sequence_parallel": switch("~dtensor.sp"),
        f"{place}tensor_parallel_size": whole_number("~dtensor.tp"),
        f"{place}context_parallel_size": whole_number("~dtensor.cp"),
    }


def _of_megatron(place: str, mark: str) -> dict[str, Rule]:
    own: dict[str, Rule] = {
        "activation_checkpointing": switch("~checkpoints"),
        **dict.fromkeys(("use_fused_linear_logprobs", "use_linear_ce_fusion_loss"), switch("loss", "fused_linear", None)),
        **dict.fromkeys(("fused_linear_logprobs_chunk_size", "linear_ce_fusion_chunk_size"), whole_number("~fused_chunk")),
        "fp8_cfg.enabled": switch("fp8", "te", None),
        "fp8_cfg.fp8_param": switch("~fp8_params"),
        "peft.enabled": switch("~lora"),
        "peft.dim": whole_number("lora.r"),
        "peft.target_modules": megatron.adapted,
        "peft.dropout": "lora.dropout",
    }
    rules = megatron.options(place, optimizer=f"{place}optimizer.", ddp=f"{place}distributed_data_parallel_config.", mark=mark)
    return rules | {f"{place}{name}": megatron.held(rule, mark) for name, rule in own.items()}


def _algorithm(name: str) -> Write:
    return lambda facts, entry: facts.put("task", name, entry.where)


def _distillation(facts: Facts, entry: Entry) -> None:
    facts.put("task", "distill", entry.where)
    facts.leave(entry, "what the student generates to learn from is not counted; a step over given answers is")


def _tokens(facts: Facts, entry: Entry) -> None:
    """Tokens of a micro-batch; what is written as a product of others is what a micro-batch of whole sequences has."""
    if number(entry.value) is not None:
        facts.put("~tokens", entry.number, entry.where)


KEYS: dict[str, Rule] = {
    "policy.model_name": "model",
    "policy.train_micro_batch_size": whole_number("micro_batch"),
    "policy.train_global_batch_size": whole_number("~global_batch"),
    "policy.max_total_sequence_length": whole_number("seq_len"),
    "policy.precision": "~load_dtype",
    **_dtensor(),
    "policy.megatron_cfg.enabled": switch("~megatron"),
    **_of_megatron("policy.megatron_cfg.", megatron.HELD),
    "policy.dtensor_cfg.cpu_offload": switch("offload.params", "cpu", None),
    "policy.dtensor_cfg.lora_cfg.enabled": switch("~lora"),
    "policy.dtensor_cfg.lora_cfg.dim": whole_number("lora.r"),
    "policy.dtensor_cfg.lora_cfg.match_all_linear": switch("lora.target_modules", "all-linear", None),
    "policy.logprob_batch_size": whole_number("rl.score_micro_batch"),
    "policy.logprob_chunk_size": whole_number("~chunk"),
    "policy.sequence_packing.enabled": switch("~packs"),
    "policy.sequence_packing.train_mb_tokens": _tokens,
    "policy.dynamic_batching.enabled": switch("~packs"),
    "policy.dynamic_batching.train_mb_tokens": _tokens,
    "policy.draft.enabled": when("", None, then="a draft model that is trained beside the policy"),
    "policy.quant_cfg": when("", None, then="what training for quantised weights keeps beside them"),
    "policy.offload_optimizer_for_logprob": switch("~puts_optimizer_away"),
    "policy.generation.colocated.resources.gpus_per_node": whole_number("~generating.gpus"),
    "policy.generation.colocated.resources.num_nodes": whole_number("~generating.nodes"),
    "policy.generation.backend": word("rollout.engine", ENGINES, otherwise="leave"),
    "policy.generation.colocated.enabled": switch("rollout.cards", "same", "other"),
    "policy.generation.top_p": unless(1, "1.0", why="log-probabilities of what sampling leaves; those of the whole vocabulary are counted"),
    "policy.generation.top_k": unless(-1, why="log-probabilities of what sampling leaves; those of the whole vocabulary are counted"),
    "policy.generation.vllm_cfg.gpu_memory_utilization": "rollout.gpu_memory_utilization",
    "policy.generation.vllm_cfg.tensor_parallel_size": whole_number("rollout.tensor_parallel_size"),
    "policy.generation.vllm_cfg.enforce_eager": switch("serving.enforce_eager"),
    "policy.generation.vllm_cfg.max_model_len": whole_number("serving.max_model_len"),
    "policy.generation.vllm_cfg.kv_cache_dtype": word("serving.kv_cache_dtype", {"auto": None, "fp8": "fp8"}, otherwise="leave"),
    "policy.generation.vllm_kwargs.max_num_seqs": whole_number("serving.max_num_seqs"),
    "policy.generation.vllm_kwargs.max_num_batched_tokens": whole_number("serving.max_num_batched_tokens"),
    "grpo.num_generations_per_prompt": each(_algorithm("grpo"), whole_number("rollout.num_generations")),
    "grpo.num_prompts_per_step": each(_algorithm("grpo"), whole_number("~prompts")),
    "ppo.num_generations_per_prompt": each(_algorithm("ppo"), whole_number("rollout.num_generations")),
    "ppo.num_prompts_per_step": each(_algorithm("ppo"), whole_number("~prompts")),
    "ppo.ppo_epochs": each(_algorithm("ppo"), whole_number("rl.epochs")),
    "value.model_name": "roles.critic.model",
    "value.megatron_cfg.enabled": switch("~value.megatron"),
    **_of_megatron("value.megatron_cfg.", VALUE),
    "value.train_micro_batch_size": whole_number("roles.critic.micro_batch"),
    "value.dtensor_cfg.activation_checkpointing": switch("roles.critic.recompute", "submodules", "none"),
    "rm.max_num_epochs": _algorithm("reward"),
    "rm.max_num_steps": _algorithm("reward"),
    "distillation.num_prompts_per_step": _distillation,
    "distillation.num_generations_per_prompt": _distillation,
    "teacher.model_name": "roles.teacher.model",
    "loss_fn.reference_policy_kl_penalty": lambda facts, entry: facts.put("rl.kl", "none" if entry.real == 0 else "loss", entry.where),
    "dpo.max_num_epochs": _algorithm("dpo"),
    "cluster.gpus_per_node": whole_number("~gpus_per_node"),
    "cluster.num_nodes": whole_number("~nodes"),
}


def finish(facts: Facts) -> None:
    """Which workers train, and in what they hold weights: DTensor's in fp32, computing in the precision of the file; Megatron's in that."""
    low = facts.get("~load_dtype", "bfloat16")
    if facts.get("~megatron", False):
        if facts.get("~dtensor", False):
            raise InputError("enables megatron_cfg and dtensor_cfg; one of them trains", where=facts.where("~megatron"))
        _megatron(facts, low)
    else:
        megatron.drop(facts)
        _of_dtensor(facts, low)
    _cast(facts)


def _of_dtensor(facts: Facts, low: str) -> None:
    if facts.get("~dtensor.sp", False):
        facts.unused.append(f"{facts.found.pop('~dtensor.sp').where}: sequence parallelism beside DTensor's tensor parallelism; norms are counted whole")
    for degree in ("tp", "cp"):
        if f"~dtensor.{degree}" in facts.found:
            facts.put(f"sharding.{degree}", facts.get(f"~dtensor.{degree}"), facts.where(f"~dtensor.{degree}"))
    if facts.get("~dtensor.recompute", False):
        facts.put("recompute", "submodules", facts.where("~dtensor.recompute"))
    facts.default("~engine", "fsdp2", VERSION)
    if "~dtensor" in facts.found:
        facts.put("dtype", "float32", f"{VERSION} holds weights in fp32")
        facts.put("autocast", low, facts.where("~load_dtype"))
    facts.default("optimizer", "adamw_torch", VERSION)


def _megatron(facts: Facts, low: str) -> None:
    for name in [name for name in facts.found if name.startswith("lora.") or name == "~lora"]:
        del facts.found[name]  # the other workers'
    megatron.take(facts)
    where = facts.where("~megatron")
    facts.put("code", "megatron", where)
    facts.put("~engine", "megatron", where)
    facts.put("dtype", low, facts.where("~load_dtype"))
    _checkpoints(facts)
    for name, value in WORKERS.items():
        facts.default(name, value, VERSION)
    if facts.get("fp8") is not None and facts.get("~fp8_params", False):
        facts.put("fp8_params", value=True, where=facts.where("~fp8_params"))
    if facts.get("~lora", False):
        facts.default("lora.target_modules", "all-linear", VERSION)
        facts.default("lora.dtype", low, VERSION)
    chunk = "~fused_chunk" if facts.get("loss") == "fused_linear" else "~chunk"
    if chunk in facts.found:
        facts.put("rl.logprob_chunk", facts.get(chunk), facts.where(chunk))


def _checkpoints(facts: Facts, place: str = "") -> None:
    """Its granularity has a meaning where checkpointing is switched on, of every layer by itself (models/megatron/setup.py, _apply_performance_config)."""
    if not facts.get("~checkpoints", False):
        facts.found.pop(f"{place}recompute", None)
        facts.found.pop(f"{place}recompute_modules", None)
        return
    if f"{place}recompute" not in facts.found:
        facts.put(f"{place}recompute", "full", facts.where("~checkpoints"))


def _cast(facts: Facts) -> None:
    """Of GRPO and PPO, what generates, and what of the policy makes room for it (algorithms/grpo.py, offload_before_refit and offload_after_refit)."""
    task = facts.get("task")
    vllm = facts.get("rollout.engine", "vllm") == "vllm"
    online = ("rollout.", "rl.", *(("serving.",) if vllm else ()))
    kept = {"ppo": (*online, "roles.critic."), "grpo": online, "distill": ("roles.teacher.",), "dpo": ("rl.logprob_chunk",)}
    for name in [name for name in facts.found if name.startswith(("rollout.", "rl.", "roles.", "serving.")) and not name.startswith(kept.get(str(task), ()))]:
        del facts.found[name]
    if task == "dpo":
        facts.put("roles.reference.precomputed", value=True, where=f"{VERSION} asks the reference before a step, in the policy's own storage")
        if facts.get("code") == "megatron":
            facts.default("rl.framework", "nemo-rl", VERSION)
    if task not in ("grpo", "ppo"):
        return
    if facts.get("rollout.engine") == "megatron":
        raise InputError("Megatron's own engine generates; memcalc knows vllm and sglang as servers", where=facts.where("rollout.engine"))
    if task == "ppo":
        _critic(facts)
    facts.default("rl.framework", "nemo-rl", VERSION)
    tokens = facts.get("~tokens")
    if tokens is not None and facts.get("~packs", False) and tokens != facts.get("micro_batch", 1) * facts.get("seq_len", 0):
        facts.put("rl.max_token_len", tokens, facts.where("~tokens"))
    _put_away(facts)
    reinforcement.shared_prompts(facts, "~prompts")


def _put_away(facts: Facts) -> None:
    """What of the policy is on the host between its passes.

    Main parameters are no states of the optimizer unless it is the precision-aware one (move_optimizer). Beside a server on cards of its own, which
    are taken off those that train, nothing is put away but buffers of gradients, and the optimizer for log-probabilities where that is asked for.
    """
    trains = facts.get("code") == "megatron"
    if facts.get("rollout.cards", "same") == "same":
        whole = not trains or facts.get("sharding.use_precision_aware_optimizer", False)
        if not whole:
            for what in ("params", "moments", "gradients"):
                facts.put(f"roles.actor.idle.{what}", "cpu", facts.where("sharding.use_precision_aware_optimizer"))
        return
    where = facts.where("rollout.cards")
    away = {"gradients": "cpu"} if trains else {}
    facts.put("roles.actor.idle", away | ({"optimizer": "cpu"} if facts.get("~puts_optimizer_away", False) else {}), where)
    nodes, each = facts.get("~generating.nodes", 0), facts.get("~generating.gpus", 0)
    if 0 < nodes < facts.get("~nodes", 1):
        facts.override("~nodes", facts.get("~nodes") - nodes, where)
    elif 0 < each < facts.get("~gpus_per_node", 0):
        facts.override("~gpus_per_node", facts.get("~gpus_per_node") - each, where)


def _critic(facts: Facts) -> None:
    """The value model, with workers of the policy's kind and degrees of its own."""
    facts.default("roles.reward", None, f"{VERSION}, whose rewards are functions")
    if facts.get("roles.critic.model") == facts.get("model"):
        facts.found.pop("roles.critic.model", None)
    if facts.get("~value.megatron", False) != facts.get("~megatron", False):
        raise InputError("policy and value have workers of different kinds, which memcalc does not count together", where=facts.where("~value.megatron"))
    if not facts.get("~megatron", False):
        return
    inner = Facts()
    inner.found = {name: fact for name, fact in facts.found.items() if name.startswith(VALUE)}
    megatron.take(inner, VALUE)
    _checkpoints(inner)
    inner.default("recompute", "none", VERSION)
    for name, fact in inner.found.items():
        if name.startswith("sharding.") or name == "recompute":
            facts.put(f"roles.critic.{name}", fact.value, fact.where)


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
