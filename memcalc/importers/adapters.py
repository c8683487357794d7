"""Keys of adapters and of quantised weights, as PEFT, TRL and the front-ends name them."""

from __future__ import annotations

from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.rules import switch, whole_number


def targets(facts: Facts, entry: Entry) -> None:
    """Names, a regular expression, or all-linear."""
    value = entry.value
    if value in ("", []):
        return  # as if it were not there
    if isinstance(value, list):
        value = [item.strip(" ,") if isinstance(item, str) else item for item in value]
    if isinstance(value, list) and len(value) == 1 and str(value[0]) in ("all-linear", "all", "all_linear"):
        value = "all-linear"
    facts.put("lora.target_modules", value, entry.where)


def saved(facts: Facts, entry: Entry) -> None:
    """Modules of which a whole copy is trained: a list, or names in a text."""
    items = entry.value if isinstance(entry.value, list) else str(entry.value).replace(",", " ").split()
    if items:
        facts.put("lora.modules_to_save", tuple(str(item) for item in items), entry.where)


def parameters(facts: Facts, entry: Entry) -> None:
    """Stacked weights of experts that get adapters: a list, or names in a text."""
    items = entry.value if isinstance(entry.value, list) else str(entry.value or "").replace(",", " ").split()
    if items:
        facts.put("lora.target_parameters", tuple(str(item) for item in items), entry.where)


def layers(facts: Facts, entry: Entry) -> None:
    """Numbers of the layers that get adapters."""
    numbers = entry.value if isinstance(entry.value, list) else [entry.value]
    if numbers:
        facts.put("lora.layers_to_transform", tuple(map(str, numbers)), entry.where)


def all_linear(facts: Facts, entry: Entry) -> None:
    """axolotl's switch for every linear layer."""
    if entry.is_on:
        facts.put("lora.target_modules", "all-linear", entry.where)


def four(facts: Facts, entry: Entry) -> None:
    """``load_in_4bit``."""
    if entry.is_on:
        facts.put("~bits", 4, entry.where)


def eight(facts: Facts, entry: Entry) -> None:
    """``load_in_8bit``."""
    if entry.is_on:
        facts.put("~bits", 8, entry.where)


def ranked(facts: Facts, framework: str = "") -> None:
    """What follows from ``~lora_rank``: adapters where it is above 0, by a framework's default on every linear layer."""
    rank = facts.get("~lora_rank", 0)
    if rank > 0:
        facts.put("~lora", value=True, where=facts.where("~lora_rank"))
        facts.put("lora.r", rank, facts.where("~lora_rank"))
        if framework:
            facts.default("lora.target_modules", "all-linear", framework)


def modules(*names: str) -> dict[str, Rule]:
    """The keys of LoRA under these names."""
    r, target, dropout, save = names
    return {
        r: whole_number("lora.r"),
        target: targets,
        dropout: "lora.dropout",
        save: saved,
    }


KEYS: dict[str, Rule] = {
    **modules("lora_r", "lora_target_modules", "lora_dropout", "lora_modules_to_save"),
    "use_peft": switch("~lora"),
    "load_in_4bit": four,
    "load_in_8bit": eight,
    "bnb_4bit_quant_type": "~quant_type",
    "use_bnb_nested_quant": switch("~double_quant"),
    "bnb_4bit_use_double_quant": switch("~double_quant"),
    "use_dora": switch("lora.use_dora"),
    "lora_target_parameters": parameters,
    "bnb_4bit_quant_storage": "~quant_storage",
    "bnb_4bit_compute_dtype": "~compute_dtype",
}


IGNORED = ("lora_alpha", "lora_bias", "use_rslora", "lora_task_type")

__all__ = ["IGNORED", "KEYS", "all_linear", "eight", "four", "layers", "modules", "parameters", "ranked", "saved", "targets"]
