"""Keys that scripts around transformers' Trainer call their own, where they are not TRL's (FastChat, Qwen, LLaVA, InternVL, open-instruct, QLoRA's)."""

from __future__ import annotations

from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.rules import Write, each, names, switch, unless, when, whole_number

MARK = "~script"
"""The fact that one of them stands there: defaults are not TRL's."""
FROZEN = "what it freezes is counted as trained"


def _mark(facts: Facts, entry: Entry) -> None:
    facts.put(MARK, value=True, where=entry.where)


def _quantised(facts: Facts, entry: Entry) -> None:
    """``--q_lora``: adapters on weights of 4 bits."""
    if entry.is_on:
        facts.put("~lora", value=True, where=entry.where)
        facts.put("~bits", 4, entry.where)


def _mode(facts: Facts, entry: Entry) -> None:
    """Firefly's ``train_mode``."""
    facts.put("~lora", entry.word in ("lora", "qlora"), entry.where)
    if entry.word == "qlora":
        facts.put("~bits", 4, entry.where)


def _bits(facts: Facts, entry: Entry) -> None:
    if entry.number in (4, 8):
        facts.put("~bits", entry.number, entry.where)


def _language_rank(facts: Facts, entry: Entry) -> None:
    """InternVL's rank of the adapters on its language model; 0 is none."""
    if entry.number > 0:
        facts.put("~lora", value=True, where=entry.where)
        facts.put("lora.r", entry.number, entry.where)


OWN: dict[str, Write] = {
    "model_max_length": whole_number("seq_len"),
    "block_size": whole_number("seq_len"),
    "use_lora": switch("~lora"),
    "lora_enable": switch("~lora"),
    "lora_rank": whole_number("lora.r"),
    **dict.fromkeys(("q_lora", "use_qlora"), _quantised),
    **dict.fromkeys(("dpo_beta", "dpo_loss_type"), lambda facts, entry: facts.put("~trl", "dpo", entry.where)),
    "bits": _bits,
    "train_mode": _mode,
    "double_quant": switch("~double_quant"),
    "use_llm_lora": _language_rank,
    "use_backbone_lora": unless(0),
    **dict.fromkeys(("use_flash_attn", "use_flash_attention", "use_flash_attention_2", "flash_attn"), switch("attention", "flash_attention_2", None)),
    **dict.fromkeys(("freeze_llm", "freeze_backbone", "tune_mm_mlp_adapter", "freeze_vision_modules"), when("", None, then=FROZEN)),
    **dict.fromkeys(("tune_mm_llm", "tune_mm_vision"), unless("true", why=FROZEN)),
}
IGNORED = names(
    "with_tracking num_epochs checkpointing_steps keep_last_n_checkpoints use_slow_tokenizer add_bos hf_metadata_dataset conversation_template version "
    "image_folder image_aspect_ratio mm_use_* mm_vision_select_* mm_projector_type mm_projector_lr pretrain_mm_mlp_adapter group_by_modality_length "
    "try_launch_* train_args_file validation_split_percentage"
)
KEYS: dict[str, Rule] = {key: each(rule, _mark) for key, rule in OWN.items()}


def _device_map(facts: Facts, entry: Entry) -> None:
    """A map of everything to one card is what is counted anyway."""
    if entry.word in ("auto", "balanced", "balanced_low_0", "sequential"):
        facts.put("~device_map", entry.word, entry.where)
    elif not (isinstance(entry.value, int) or entry.word.startswith("cuda") or (isinstance(entry.value, dict) and set(entry.value) == {""})):
        facts.leave(entry, "each process is counted with the whole model on its card")


PLACES: dict[str, Rule] = {"device_map": _device_map}
"""How ``from_pretrained`` spreads a model."""


def place(facts: Facts) -> None:
    """A device map of one process; of several each would spread its model over all cards, which DeepSpeed and FSDP refuse."""
    if "~device_map" not in facts.found:
        return
    where, several = facts.where("~device_map"), facts.cards > 1 and "hardware.gpus" not in facts.found
    if several or facts.links or "sharding.engine" in facts.found or facts.get("task", "train") not in ("train", "inference"):
        facts.unused.append(f"{where}: device_map {facts.get('~device_map')}: layers are spread over cards by a single process that trains or generates")
    else:
        facts.put("loading.device_map", facts.get("~device_map"), where)


def finish(facts: Facts) -> None:
    """Adapters where a rank is given and nothing switches them off; on which layers a script puts them is written in it."""
    if "lora.r" in facts.found:
        facts.derive("~lora", value=True, where=facts.where("lora.r"))
    if facts.get("~lora", False) and "lora.target_modules" not in facts.found:
        facts.default("lora.target_modules", "all-linear", "scripts with adapters, which name their layers themselves (--lora-target-modules)")


__all__ = ["IGNORED", "KEYS", "MARK", "PLACES", "finish", "place"]
