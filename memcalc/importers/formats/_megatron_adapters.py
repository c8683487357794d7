"""Adapters as Megatron-Bridge and NeMo 1 write them, below ``peft``: layers by the names that they have in Megatron."""

from __future__ import annotations

from memcalc.errors import InputError
from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.rules import unless

LAYERS = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"), "linear_q": ("q_proj",), "linear_k": ("k_proj",), "linear_v": ("v_proj",), "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"), "linear_fc1_gate": ("gate_proj",), "linear_fc1_up": ("up_proj",), "linear_fc2": ("down_proj",),
    "attention_qkv": ("q_proj", "k_proj", "v_proj"), "attention_dense": ("o_proj",), "mlp_fc1": ("gate_proj", "up_proj"), "mlp_fc2": ("down_proj",),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"), "mlp": ("gate_proj", "up_proj", "down_proj"),
}  # fmt: skip
"""Layers of transformers by those of Megatron; what is fused there gets one adapter."""


def _targets(facts: Facts, entry: Entry) -> None:
    items = entry.value if isinstance(entry.value, list) else str(entry.value).strip("[]").replace(",", " ").split()
    names = [str(item).strip("'\" ") for item in items]
    if "all" in names:
        facts.put("lora.target_modules", "all-linear", entry.where)
    elif names:
        facts.put("lora.target_modules", [layer for name in names for layer in LAYERS.get(name.rpartition(".")[2], (name,))], entry.where)


def _class(facts: Facts, entry: Entry) -> None:
    kind = entry.word.rpartition(".")[2]
    if kind not in ("lora", "canonicallora", "dora"):
        raise InputError(f"{entry.key} {entry.value}: its adapters are not counted; lora and dora are", where=entry.where)
    facts.put("~lora", value=True, where=entry.where)
    if kind == "dora":
        facts.put("lora.use_dora", value=True, where=entry.where)
    facts.default("lora.target_modules", "all-linear", "Megatron-Bridge and NeMo")


def _scheme(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("none", "null", ""):
        _class(facts, entry)
        facts.default("lora.r", 32, "NeMo 1")


def _rank(facts: Facts, entry: Entry) -> None:
    """Bridge's; NeMo 1 writes one for each scheme, whether it is the one or not."""
    facts.put("lora.r", entry.number, entry.where)
    if entry.key == "peft.dim":
        facts.put("~lora", value=True, where=entry.where)
        facts.default("lora.target_modules", "all-linear", "Megatron-Bridge")


def _recipe(facts: Facts, entry: Entry) -> None:
    """Adapters by the name of Bridge's recipe (scripts/training/recipe_metadata.py, infer_recipe_mode), of the rank that its recipes have."""
    facts.leave(entry, "what a recipe sets in Python is not seen; give its model, degrees and lengths")
    _by_name(facts, entry, f"_{entry.word.strip('_')}_")


def _by_name(facts: Facts, entry: Entry, name: str) -> None:
    found = next((kind for kind in ("dora", "peft", "lora") if f"_{kind}_" in name), None)
    if found is None or "_pretrain_" in name or "_sft_" in name:
        return
    facts.put("~lora", value=True, where=entry.where)
    if found == "dora":
        facts.put("lora.use_dora", value=True, where=entry.where)
    facts.default("lora.r", 32, "Megatron-Bridge's recipes")
    facts.default("lora.target_modules", "all-linear", "Megatron-Bridge")


KEYS: dict[str, Rule] = {
    "recipe": _recipe,
    "mode": lambda facts, entry: _by_name(facts, entry, f"_{entry.word}_"),
    "peft._target_": _class,
    "peft.peft_scheme": _scheme,
    "peft_scheme": _scheme,
    "peft": _scheme,
    **dict.fromkeys(("peft.dim", "peft.lora_tuning.adapter_dim"), _rank),
    **dict.fromkeys(("peft.dropout", "peft.lora_tuning.adapter_dropout"), "lora.dropout"),
    **dict.fromkeys(("peft.target_modules", "peft.lora_tuning.target_modules"), _targets),
    "peft.exclude_modules": unless(),
}

__all__ = ["KEYS"]
