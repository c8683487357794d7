"""PEFT's adapter_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters
from memcalc.importers.facts import ADAPTER, Entry, Facts
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, whole_number

ADALORA_RANK = 12
"""The default of ``init_r`` (peft/tuners/adalora/config.py)."""
PROMPTS = ("prompt_tuning", "p_tuning", "prefix_tuning")


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``peft_type``."""
    return "peft_type" in keys


def _kind(facts: Facts, entry: Entry) -> None:
    if entry.word == "lora":
        facts.put("~lora", value=True, where=entry.where)
    elif entry.word == "adalora":
        facts.put("~lora", value=True, where=entry.where)
        facts.put("~adalora", value=True, where=entry.where)
        facts.leave(entry, "LoRA of its first rank is counted")
    elif entry.word in PROMPTS:
        facts.put("prompt.type", entry.word, entry.where)
    else:
        raise InputError(
            f"peft_type {entry.value} is not known to memcalc; accepted: LORA, ADALORA, {', '.join(name.upper() for name in PROMPTS)}", where=entry.where
        )


def _network(_facts: Facts, entry: Entry) -> None:
    """What P-tuning makes its tokens with; an LSTM is not counted."""
    if entry.word not in ("mlp", "none"):
        raise InputError(f"encoder_reparameterization_type {entry.value} is not known to memcalc; accepted: MLP", where=entry.where)


def _finish(facts: Facts) -> None:
    """The width of a network that there is, AdaLoRA's rank before it is cut, and PEFT's own choice of modules where none are named."""
    if facts.get("~lora", False) and not {"lora.target_modules", "lora.target_parameters"} & set(facts.found):
        facts.put("lora.target_modules", "default", "no target_modules: PEFT's own, by the model's type")
    if facts.get("~adalora", False):
        facts.override("lora.r", facts.get("~init_r", ADALORA_RANK), facts.where("~init_r", "~adalora"))
    if facts.get("~encoder_hidden_size") and (facts.get("prompt.type") == "p_tuning" or facts.get("prompt.prefix_projection", False)):
        facts.derive("prompt.encoder_hidden_size", facts.get("~encoder_hidden_size"), facts.where("~encoder_hidden_size"))


FORMAT = Format(
    name="peft",
    title="PEFT adapter_config.json",
    version="PEFT 0.21",
    rank=ADAPTER,
    recognise=recognise,
    keys={
        "peft_type": _kind,
        "num_virtual_tokens": whole_number("prompt.num_virtual_tokens"),
        "prefix_projection": switch("prompt.prefix_projection", off=None),
        "encoder_hidden_size": whole_number("~encoder_hidden_size"),
        "encoder_reparameterization_type": _network,
        "base_model_name_or_path": "model",
        **adapters.modules("r", "target_modules", "lora_dropout", "modules_to_save"),
        "init_r": whole_number("~init_r"),
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
        "lora_ga_config use_bdlora token_dim num_attention_heads num_layers num_transformer_submodules prompt_tuning_init* tokenizer_* "
        "encoder_dropout encoder_num_layers init_weights target_r tinit tfinal deltaT beta1 beta2 orth_reg_weight total_step velora_config monteclora_config"
    ),
    finish=_finish,
    order=5,
)  # fmt: skip
