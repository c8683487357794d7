"""PEFT's adapter_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers import adapters
from memcalc.importers.facts import ADAPTER, Entry, Facts
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``peft_type``."""
    return "peft_type" in keys


def _kind(facts: Facts, entry: Entry) -> None:
    if entry.word == "lora":
        facts.put("~lora", value=True, where=entry.where)
    else:
        facts.leave(entry, "only LoRA is counted")


FORMAT = Format(
    name="peft",
    title="PEFT adapter_config.json",
    version="PEFT 0.19",
    rank=ADAPTER,
    recognise=recognise,
    keys={
        "peft_type": _kind,
        "base_model_name_or_path": "model",
        **adapters.modules("r", "target_modules", "lora_dropout", "modules_to_save"),
        "use_dora": switch("lora.use_dora"),
        "rank_pattern": lambda facts, entry: facts.put("lora.rank_pattern", entry.value, entry.where),
        "layers_to_transform": adapters.layers,
        "layer_replication": unless(),
        "target_parameters": lambda facts, entry: facts.put("lora.target_parameters", entry.value, entry.where) if entry.value else None,
        "trainable_token_indices": unless(),
        "exclude_modules": lambda facts, entry: facts.put("lora.exclude_modules", entry.value, entry.where) if entry.value else None,
        "bias": unless("none"),
    },
    ignored=names(
        "lora_alpha task_type inference_mode revision auto_mapping fan_in_fan_out init_lora_weights use_rslora alpha_pattern megatron_* loftq_config "
        "eva_config corda_config layers_pattern lora_bias qalora* use_qalora arrow_config ensure_weight_tying peft_version runtime_config* alora* "
        "lora_ga_config use_bdlora"
    ),
    order=5,
)  # fmt: skip
