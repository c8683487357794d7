"""TRL's trainers, by the names of their scripts and of ``trl``'s commands, and by the keys that are theirs alone (checked against TRL 1.16)."""

from __future__ import annotations

import re

from memcalc.errors import InputError
from memcalc.importers.facts import Entry, Facts, Link, number

TRAINERS = {
    "sft": "train", "dpo": "dpo", "mpo": "dpo", "kto": "kto", "bco": "kto", "orpo": "orpo", "cpo": "orpo", "simpo": "simpo", "reward": "reward",
    "rm": "reward", "grpo": "grpo", "gspo": "grpo", "dapo": "grpo", "rloo": "rloo", "ppo": "ppo", "gkd": "distill", "distillation": "distill",
    "gold": "distill", "minillm": "distill",
}  # fmt: skip
"""What each learns. BCO has KTO's passes; CPO adds the loss of what was chosen to that of the pair, as ORPO does."""

OTHERS = ("online_dpo", "nash_md", "xpo", "prm", "tpo", "sdft", "sdpo", "ssd", "async_grpo")
"""Trainers with passes that are not counted."""

KEYS_OF = (
    ("distill", ("roles.teacher.model",)),
    ("ppo", ("~reward",)),
    ("grpo", ("~grpo", "rollout.response_length")),
    ("kto", ("~desirable_weight",)),
    ("orpo", ("~cpo_alpha",)),
    ("reward", ("~center_rewards",)),
    ("dpo", ("~beta",)),
)
"""Tasks by the facts of keys that their trainers alone have, those first that other trainers' keys may stand beside."""

WHOLE = ("dpo", "kto", "grpo", "rloo")
"""Tasks whose trainers took whole logits before 1.16, and find log-probabilities in tiles since."""


def named(facts: Facts, name: str, *, where: str, sure: bool = False) -> None:
    """The trainer that a command of ``trl``, or a script, has in its name.

    Args:
        facts: where its task goes.
        name: ``dpo``, or ``examples/scripts/dpo_vlm.py``.
        where: what messages call it.
        sure: it is TRL's, by whatever name.

    Raises:
        InputError: a trainer of TRL that is not counted.
    """
    stem = name.replace("\\", "/").rpartition("/")[2].removesuffix(".py").lower().replace("-", "_")
    other = next((other for other in OTHERS if stem == other or stem.startswith(f"{other}_")), None)
    if other is not None:
        raise InputError(f"TRL's {other} is not counted; {', '.join(TRAINERS)} are", where=where)
    found = next((word for word in re.split(r"[_.]", stem) if word in TRAINERS), None)
    if found is None and sure:
        raise InputError(f"trl {name}: it is no trainer that memcalc knows; {', '.join(TRAINERS)} are", where="command")
    if found is not None and (TRAINERS[found] != "train" or sure or re.search(r"\btrl[/.]", name)):
        facts.put("~trl", TRAINERS[found], where)


def task_of(facts: Facts) -> str | None:
    """What is learnt, by the trainer's name or by keys; None for labels."""
    found = facts.get("~trl")
    if found is None:
        mine = {name for name, fact in facts.found.items() if fact.rank >= facts.rank}
        found = next((task for task, names in KEYS_OF if mine & set(names)), None)
    if found == "distill" and "roles.teacher.model" not in facts.found:
        return None
    if found in ("orpo", "simpo") and str(facts.get("~loss_type")) == "simpo":
        return "simpo" if number(facts.get("~cpo_alpha", 1)) == 0 else "orpo"
    return None if found == "train" else found


def name_accelerate(facts: Facts, entry: Entry) -> None:
    """What ``--accelerate_config`` holds: a path, or the name of a file that TRL ships (trl/cli/accelerate_config.py)."""
    text = str(entry.value)
    facts.links.append(Link(text if text.endswith((".yaml", ".yml")) else f"accelerate_configs/{text}.yaml", entry.where, facts.folder, "accelerate"))


__all__ = ["TRAINERS", "WHOLE", "name_accelerate", "named", "task_of"]
