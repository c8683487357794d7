"""Arguments of alpaca-lora's ``finetune.py`` and of the scripts that follow it: adapters on weights of 8 bits, in fp16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers import adapters
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import names, whole_number

VERSION = "alpaca-lora of April 2023"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its names for a model and a length."""
    return "base_model" in keys and "cutoff_len" in keys


def _targets(facts: Facts, entry: Entry) -> None:
    """A list as Fire reads it: ``[q_proj,v_proj]``."""
    value = entry.value
    adapters.targets(facts, entry if isinstance(value, list) else entry._replace(value=[name.strip(" '\"") for name in str(value).strip("[]").split(",")]))


KEYS: dict[str, Rule] = {
    "base_model": "model",
    "batch_size": whole_number("~global_batch"),
    "micro_batch_size": whole_number("micro_batch"),
    "cutoff_len": whole_number("seq_len"),
    "lora_r": whole_number("lora.r"),
    "lora_dropout": "lora.dropout",
    "lora_target_modules": _targets,
}


def finish(facts: Facts) -> None:
    """What its code says itself: 8 bits, fp16, checkpoints of every layer."""
    for name, value in {"~bits": 8, "~mixed_precision": "fp16", "~load_dtype": "float16", "~lora": True, "recompute": "full"}.items():
        facts.put(name, value, VERSION)


FORMAT = Format(
    name="alpaca_lora",
    title="Arguments of alpaca-lora",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "data_path output_dir num_epochs learning_rate val_set_size lora_alpha train_on_inputs add_eos_token group_by_length wandb_* resume_from_checkpoint "
        "prompt_template_name"
    ),
    defaults={
        "~global_batch": 128, "micro_batch": 4, "seq_len": 256, "lora.r": 8, "lora.dropout": 0.05, "lora.target_modules": ("q_proj", "v_proj"),
        "optimizer": "adamw_torch",
    },
    finish=finish,
    order=29,
)  # fmt: skip
