"""Keys of TRL's trainers that learn from preferences and from their own answers; prompts of a card, for other frameworks too."""

from __future__ import annotations

from math import gcd

from memcalc.importers.facts import Entry, Facts, Rule, whole
from memcalc.importers.rules import switch, whole_number, word

TRL = "TRL 1.16"
ONLINE = ("ppo", "grpo", "rloo", "reinforce++", "gspo", "dapo")
"""Tasks that learn from their own answers."""
GROUPS = {"grpo": 8, "rloo": 2}
"""Answers to a prompt where nobody says how many (trl/trainer/grpo_config.py, rloo_config.py)."""


def _mode(facts: Facts, entry: Entry) -> None:
    facts.put("rollout.cards", "other" if entry.word == "server" else "same", entry.where)


def _reward(facts: Facts, entry: Entry) -> None:
    """A model that scores, or the first of several."""
    several = entry.value if isinstance(entry.value, list) else [entry.value]
    if several:
        facts.put("~reward", str(several[0]), entry.where)
    for other in several[1:]:
        facts.leave(entry._replace(value=other), "one model that scores is counted")


KEYS: dict[str, Rule] = {
    "max_completion_length": whole_number("rollout.response_length"),
    "response_length": whole_number("rollout.response_length"),
    "max_prompt_length": whole_number("~prompt"),
    "num_generations": whole_number("rollout.num_generations"),
    "num_iterations": whole_number("rl.epochs"),
    "num_ppo_epochs": whole_number("rl.epochs"),
    "local_rollout_forward_batch_size": whole_number("rl.score_micro_batch"),
    "steps_per_generation": whole_number("~steps_per_generation"),
    "generation_batch_size": whole_number("~generation_batch"),
    "use_vllm": switch("rollout.engine", "vllm", "transformers"),
    "vllm_mode": _mode,
    "vllm_gpu_memory_utilization": "rollout.gpu_memory_utilization",
    "vllm_tensor_parallel_size": whole_number("rollout.tensor_parallel_size"),
    "vllm_enable_sleep_mode": switch("rollout.sleep_level", 2, 0),
    "sleep_level": word("rollout.sleep_level", {"0": 0, "1": 1, "2": 2}),
    "reward_model_path": _reward,
    "reward_model": _reward,
    "reward_model_name_or_path": _reward,
    "precompute_ref_log_probs": switch("~precompute"),
    "ref_model": "~reference",
    "teacher_model": "roles.teacher.model",
    "teacher_model_name_or_path": "roles.teacher.model",
}


def finish(facts: Facts) -> None:
    """What these keys mean for the task that they stand beside; for another they say nothing."""
    task = facts.get("task", "train")
    for name in [name for name in facts.found if name.startswith(("rollout.", "rl.")) and task not in ONLINE]:
        del facts.found[name]
    if task != "distill":
        facts.found.pop("roles.teacher.model", None)
    if task in ("dpo", "kto"):
        if facts.get("~precompute", False):
            facts.put("roles.reference.precomputed", value=True, where=facts.where("~precompute"))
        elif "~reference" in facts.found:
            facts.put("roles.reference.model", facts.get("~reference"), facts.where("~reference"))
    if task in ONLINE:
        _online(facts)


def shared_prompts(facts: Facts, name: str) -> None:
    """Prompts of one card, where a fact says how many all have and they divide evenly."""
    total, each = facts.get(name), facts.get("~gpus_per_node")
    if total is not None and each is not None and total % (each * facts.get("~nodes", 1)) == 0:
        facts.put("rollout.prompts", total // (each * facts.get("~nodes", 1)), facts.where(name))


def _online(facts: Facts) -> None:
    facts.default("rl.framework", "trl", TRL)
    if "~beta" in facts.found:
        facts.put("rl.kl", "none" if float(facts.get("~beta")) == 0 else "loss", facts.where("~beta"))
    if "~reward" in facts.found:
        facts.put("roles.reward.model", facts.get("~reward"), facts.where("~reward"))
        if facts.get("task") == "ppo":
            _critic(facts)
    if "~prompt" in facts.found:
        facts.put("rollout.prompt_length", facts.get("~prompt"), facts.where("~prompt"))
    if facts.found.get("seq_len") is not None and facts.found["seq_len"].is_default:
        del facts.found["seq_len"]
    if facts.get("rollout.engine") == "vllm":
        facts.default("rollout.cards", "same", f"{TRL}, vllm_mode colocate; old ones have a server on other cards")
    else:
        for name in ("rollout.gpu_memory_utilization", "rollout.tensor_parallel_size", "rollout.sleep_level", "rollout.cards"):
            facts.found.pop(name, None)
    total, each = facts.get("~generation_batch"), facts.cards * whole(facts.get("micro_batch", 8), name="micro_batch")
    if total is not None and total % each == 0:
        facts.put("~steps_per_generation", total // each, facts.where("~generation_batch"))
    steps, groups = facts.get("~steps_per_generation"), facts.get("rollout.num_generations", GROUPS.get(facts.get("task"), 1))
    if steps is not None:
        _on_this_card(facts, steps * facts.get("micro_batch", 8), groups)


def _critic(facts: Facts) -> None:
    """The model that values answers begins as the one that scores them; TRL trains the whole of it whatever the actor's adapters."""
    facts.put("roles.critic.model", facts.get("~reward"), facts.where("~reward"))
    if facts.get("~lora", False) and "trainer" in facts.formats:
        facts.put("roles.critic.lora", None, TRL)


def _on_this_card(facts: Facts, answers: int, groups: int) -> None:
    """Answers of a rollout that are one card's, where groups of several may be spread over cards."""
    mine, where = gcd(answers, groups), facts.where("~steps_per_generation")
    facts.put("rollout.prompts", answers // mine, where)
    if mine != groups:
        facts.override("rollout.num_generations", mine, f"{where}: of {groups} answers to a prompt, each card has {mine}")
