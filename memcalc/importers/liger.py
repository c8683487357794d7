"""Liger's kernels in the words of frameworks: a switch, and which of them (transformers 5.24, ``TrainingArguments.liger_kernel_config``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers.facts import Entry, Facts, Rule, truth
from memcalc.importers.rules import switch
from memcalc.specs.files import parse_value
from memcalc.specs.run import LigerSpec, Run

ON = "~liger"
"""The fact that they are on; each of them is a fact below ``liger``."""

FUSED_LOSS = "liger.fused_linear_cross_entropy"
NAMES = tuple(LigerSpec.model_fields)


def _config(facts: Facts, entry: Entry) -> None:
    """``liger_kernel_config`` as text, as a command has it."""
    found = parse_value(str(entry.value), where=entry.where)
    if not isinstance(found, Mapping):
        facts.leave(entry)
        return
    for name, value in found.items():
        _one(facts, entry._replace(key=f"{entry.key}.{name}", value=value), str(name))


def _one(facts: Facts, entry: Entry, name: str) -> None:
    if name in NAMES:
        facts.put(f"liger.{name}", truth(entry.value, name=entry.key, where=entry.where), entry.where)
    else:
        facts.leave(entry, f"kernels are {', '.join(NAMES)}")


KEYS: dict[str, Rule] = {
    "use_liger_kernel": switch(ON),
    "liger_kernel_config": _config,
    "liger_kernel_config.*": lambda facts, entry: _one(facts, entry, entry.key.rpartition(".")[2]),
}


def without_labels(facts: Facts, entry: Entry) -> None:
    """A switch of a framework that gives the model no labels and takes the loss of its logits: the fused loss does not run."""
    facts.put(ON, entry.is_on, entry.where)
    facts.put(FUSED_LOSS, value=False, where=entry.where)


def settle(facts: Facts) -> None:
    """Kernels, where they are on and there is code that they can replace; their loss comes before one that a framework has by default."""
    why = None
    if facts.get("code", "transformers") != "transformers":
        why = f"beside code {facts.get('code')}"
    elif facts.get("task") == "inference":
        why = "where nothing is trained"
    if facts.get(ON, False) and why is None:
        facts.derive("liger", {}, facts.where(ON))
        if facts.get(FUSED_LOSS) is not False and facts.get("loss") != "fused_linear":
            facts.found.pop("loss", None)
        return
    if facts.get(ON, False):
        facts.unused.append(f"{facts.where(ON)}: Liger's kernels {why} are not counted")
    for name in [name for name in facts.found if name.startswith("liger.")]:
        del facts.found[name]


def brings_loss(facts: Facts) -> bool:
    """Whether the fused loss comes with the kernels that are settled on."""
    return "liger" in facts.found and facts.get(FUSED_LOSS) is not False and "loss" not in facts.found


def exported(run: Run) -> dict[str, Any]:
    """Arguments of the Trainer that switch kernels on, or their loss alone."""
    asked, fused = run.liger, run.loss == "fused_linear"
    if asked is None and not fused:
        return {}
    chosen = dict.fromkeys(NAMES, False) if asked is None else {name: value for name in NAMES if (value := getattr(asked, name)) is not None}
    if asked is None or "loss" in run.model_fields_set:
        chosen[FUSED_LOSS.rpartition(".")[2]] = fused
    return {"use_liger_kernel": True} | ({"liger_kernel_config": chosen} if chosen else {})


__all__ = ["FUSED_LOSS", "KEYS", "ON", "brings_loss", "exported", "settle", "without_labels"]
