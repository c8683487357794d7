"""What ``swift rlhf`` is told about other models and about the server that generates (ms-swift 4.6: swift/arguments/rlhf_args.py, rlhf_trainers)."""

from __future__ import annotations

from collections.abc import Mapping

from memcalc.importers import reinforcement
from memcalc.importers.facts import Entry, Facts, Rule, number, whole
from memcalc.importers.presets import preset
from memcalc.importers.rules import names, real_number, switch, unless, whole_number

TASKS = {"rm": "reward", "gkd": "distill", "cpo": "orpo"}
"""Tasks under names of its own; CPO adds the loss of what was chosen to that of the pair, as ORPO does."""
ANSWER = 512
"""The default of ``max_completion_length``."""
SHARE = 0.9
"""The default of ``vllm_gpu_memory_utilization``."""
ALL_MB = 2**20
"""More than any model has, for all of its weights."""


def _rlhf(facts: Facts, entry: Entry) -> None:
    facts.put("task", TASKS.get(entry.word, entry.word), entry.where)
    if entry.word == "cpo":
        facts.leave(entry, "what ORPO's trainer holds is counted")


def _teacher_sharding(facts: Facts, entry: Entry) -> None:
    found = preset(str(entry.value))
    if found is None:
        facts.leave(entry, "the teacher is spread as the student is")
        return
    zero = found[1]["zero_optimization"]
    facts.put("roles.teacher.sharding", {"engine": "deepspeed", "zero": zero["stage"]}, entry.where)
    if "offload_param" in zero:
        facts.put("roles.teacher.offload", {"params": "cpu"}, entry.where)


def _idle(role: str, what: str) -> Rule:
    """What is on the host while others work."""

    def write(facts: Facts, entry: Entry) -> None:
        if entry.is_on:
            facts.put(f"roles.{role}.idle", {**facts.get(f"roles.{role}.idle", {}), what: "cpu"}, entry.where)

    return write


def _batches(facts: Facts, entry: Entry) -> None:
    facts.put("~batches", entry.number, entry.where)
    facts.leave(entry, "weights on their way to the server are counted tensor by tensor")


def _estimator(facts: Facts, entry: Entry) -> None:
    if entry.word in ("rloo", "reinforce_plus_plus"):
        facts.put("~kl_in_reward", value=True, where=entry.where)


def _entropy(facts: Facts, entry: Entry) -> None:
    found = number(entry.value) if entry.key.endswith("quantile") else None
    if entry.is_on if found is None else found < 1:
        facts.put("rl.entropy", "chunked", entry.where)


KEYS: dict[str, Rule] = {
    **reinforcement.KEYS,
    "rlhf_type": _rlhf,
    "max_new_tokens": whole_number("rollout.response_length"),
    "teacher_deepspeed": _teacher_sharding,
    "teacher_model_server": unless(why="a teacher elsewhere"),
    "offload_teacher_model": _idle("teacher", "params"),
    "offload_model": _idle("actor", "params"),
    "offload_optimizer": _idle("actor", "optimizer"),
    "move_model_batches": _batches,
    "vllm_max_model_len": whole_number("~longest"),
    "vllm_pipeline_parallel_size": unless(1),
    "vllm_quantization": unless(why="the server's weights are counted as the model's are"),
    "beta": real_number("~beta"),
    "kl_in_reward": switch("~kl_in_reward"),
    "advantage_estimator": _estimator,
    "log_entropy": _entropy,
    "top_entropy_quantile": _entropy,
    "rpo_alpha": unless(0, why="a loss of the chosen answers beside"),
    "cpo_alpha": real_number("~cpo_alpha"),
    "chord_sft_per_device_train_batch_size": unless(why="examples beside what is generated"),
    "loss_weights": unless(why="one loss is counted"),
}

IGNORED = names(
    "reward_adapters* reward_funcs reward_model_* reward_template* reward_weights loss_type desirable_weight undesirable_weight center_rewards_coefficient "
    "lmbda sft_alpha seq_kd gkd_logits_topk temperature top_p top_k min_p repetition_penalty epsilon epsilon_high delta cosine_* repetition_* chord_* "
    "sync_ref_model ref_model_* ref_adapters* multi_turn_scheduler max_turns completion_length_limit_scope vllm_server_* use_gym_env gym_env "
    "dynamic_sample max_resample_times overlong_filter soft_* scale_rewards importance_sampling_level tau_* real_tau fipo_* num_generations_eval "
    "rollout_importance_* log_rollout_* off_policy_* teacher_kl_coef teacher_adapters teacher_model_* teacher_tag_key advantage_reweight rlsd_* sdar_* "
    "async_generate structured_outputs_regex wandb_log_unique_prompts log_completions vllm_enable_prefix_caching vllm_enforce_eager "
    "vllm_limit_mm_per_prompt vllm_max_num_seqs vllm_max_lora_rank vllm_enable_lora vllm_disable_* vllm_use_async_engine vllm_engine_kwargs* "
    "vllm_mm_processor_cache_gb vllm_reasoning_parser enable_flattened_weight_sync ds3_gather_for_generation whiten_rewards kl_coef cliprange* vf_coef "
    "gamma lam num_mini_batches num_sample_generations missing_eos_penalty simpo_gamma label_smoothing ld_alpha discopop_tau stop_words"
)


def finish(facts: Facts, version: str) -> None:
    """What of these keys holds for the task; for one that generates, prompts and answers, and the defaults that are not TRL's."""
    task = facts.get("task", "train")
    if task == "simpo" and number(facts.get("~cpo_alpha", 1)) != 0:
        facts.override("task", "orpo", f"{facts.where('task')}: SimPO with cpo_alpha {facts.get('~cpo_alpha', 1)} holds what ORPO does")
    if task == "distill" and facts.get("~lora", False) and facts.get("roles.teacher.model", facts.get("model")) == facts.get("model"):
        where = facts.where("roles.teacher.model") if "roles.teacher.model" in facts.found else f"{version} without teacher_model"
        facts.put("roles.teacher.model", facts.get("model"), where)
        facts.put("roles.teacher.shares", "actor", f"{where}: the student with its adapters off")
    if task in reinforcement.ONLINE:
        _online(facts, version)
    elif facts.get("rollout.engine") == "vllm":
        share = facts.where("rollout.engine")
        facts.unused.append(f"{share}: a server that generates beside task {task} is not counted; keep its share of the card free")
    for name in [name for name in facts.found if name.startswith("roles.actor.") and (task not in reinforcement.ONLINE or not _colocated(facts))]:
        del facts.found[name]
    reinforcement.finish(facts)


def _colocated(facts: Facts) -> bool:
    return bool(facts.get("rollout.engine") == "vllm" and facts.get("rollout.cards", "same") == "same")


def _stage(facts: Facts) -> int:
    config = facts.get("~deepspeed")
    return int(config.get("zero_optimization", {}).get("stage", 0)) if isinstance(config, Mapping) else 0


def _online(facts: Facts, version: str) -> None:
    facts.default("rl.framework", "trl", f"{version}, whose trainer is TRL's")
    facts.default("rollout.response_length", ANSWER, version)
    facts.default("rl.entropy", "none", version)
    facts.default("rl.kl", "loss", version)
    if facts.get("~kl_in_reward", False):
        facts.put("rl.kl", "reward", facts.where("~kl_in_reward"))
    if _colocated(facts):
        facts.default("rollout.gpu_memory_utilization", SHARE, version)
    if facts.get("rollout.engine") == "vllm" and "~batches" not in facts.found and _stage(facts) == 3:
        facts.default("rollout.bucket_mb", ALL_MB, f"{version}: without move_model_batches all weights are gathered at once on their way to the server")
    answer, longest = facts.get("rollout.response_length"), facts.get("~longest")
    prompt = facts.found.pop("seq_len", None)
    if prompt is not None:
        size, where = whole(prompt.value, name="max_length", where=prompt.where), prompt.where
        if longest is not None and answer < longest < size + answer:
            size, where = longest - answer, f"{where}; {facts.where('~longest')}"
        facts.put("~prompt", size, where)


__all__ = ["IGNORED", "KEYS", "finish"]
