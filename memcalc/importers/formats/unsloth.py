"""Unsloth's YAML (``unsloth train --config``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, training_arguments
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, whole_number
from memcalc.importers.trl import TRAINERS

VERSION = "Unsloth 2026.7"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``training.training_type``, or ``training`` beside ``lora``."""
    training = keys.get("training")
    return isinstance(training, Mapping) and ("training_type" in training or ("lora" in keys and "max_seq_length" in training))


def _kind(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("lora", "qlora", "full", "full_finetuning"):
        raise InputError(f"training_type is {entry.value!r}; accepted: lora, full", where=entry.where)
    facts.put("~lora", entry.word in ("lora", "qlora"), entry.where)


def _trainer(facts: Facts, entry: Entry) -> None:
    """TRL's trainer that a script makes (`memcalc.importers.script`); its reference is the model without adapters."""
    task = TRAINERS.get(entry.word, "train")
    if task != "train":
        facts.put("task", task, entry.where)


def _checkpointing(facts: Facts, entry: Entry) -> None:
    if entry.word == "unsloth":
        facts.put("recompute", "full", entry.where)
        facts.put("offload.activations", "cpu", entry.where)
    else:
        facts.put("recompute", "full" if entry.is_on else "none", entry.where)


KEYS: dict[str, Rule] = {
    "model": "model",
    "model.name": "model",
    "model.model_name": "model",
    "model.load_in_4bit": adapters.four,
    "training.training_type": _kind,
    "training.max_seq_length": whole_number("seq_len"),
    "training.load_in_4bit": adapters.four,
    "training.load_in_8bit": adapters.eight,
    "training.batch_size": whole_number("micro_batch"),
    "training.per_device_train_batch_size": whole_number("micro_batch"),
    "training.gradient_accumulation_steps": whole_number("grad_accum"),
    "training.optim": training_arguments.optimizer,
    "training.optimizer": training_arguments.optimizer,
    "training.gradient_checkpointing": _checkpointing,
    "training.packing": switch("~packing"),
    "training.trl_trainer": _trainer,
    "training.max_length": whole_number("seq_len"),
    **{f"lora.{key}": rule for key, rule in adapters.modules("r", "target_modules", "dropout", "modules_to_save").items()},
    **{f"lora.lora_{key}": rule for key, rule in adapters.modules("r", "target_modules", "dropout", "modules_to_save").items()},
    "lora.use_gradient_checkpointing": _checkpointing,
    "lora.finetune_vision_layers": unless("false", "true"),
    "lora.use_dora": switch("lora.use_dora"),
}
FLAGS: dict[str, Rule] = {
    **{key.partition(".")[2]: rule for key, rule in KEYS.items() if "." in key and key != "model.name"},
    "dtype": training_arguments.load_dtype,
}
"""The same without their sections, as its commands take them."""


def finish(facts: Facts) -> None:
    """Trained in bf16; adapters and frozen layers in one function (unsloth/kernels/fast_lora.py, which axolotl's kernels are made after)."""
    if facts.get("~bits") == 4:
        facts.default("kbit_upcast", value=False, framework=VERSION)
    facts.default("~load_dtype", "bfloat16", VERSION)
    facts.default("~mixed_precision", "bf16", VERSION)
    if facts.get("~lora", False):
        facts.default("lora.kernels", ("mlp", "qkv", "o"), VERSION)
    facts.unused.append("Unsloth: its norms and rotary positions keep fewer tensors than those counted, its loss since 2025 no logits (--loss fused_linear)")


FORMAT = Format(
    name="unsloth",
    title="Unsloth YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys={**KEYS, **FLAGS},
    ignored=names(
        "data.* data logging.* training.* lora.* lora model.* export.* name version dataset lora_alpha bias random_state use_rslora loftq_config warmup_steps "
        "max_steps learning_rate weight_decay lr_scheduler_type seed output_dir report_to save_* push_* hub_* logging_steps quantization* dry_run num_epochs"
    ),
    defaults={"micro_batch": 2, "grad_accum": 4, "seq_len": 2048, "optimizer": "adamw_8bit", "~lora": True, "lora.r": 16, "lora.target_modules": "all-linear",
              "recompute": "full", "~double_quant": False},
    finish=finish,
    order=14,
)  # fmt: skip
