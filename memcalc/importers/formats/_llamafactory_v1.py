"""LLaMA-Factory's v1 schema: adapters, sharding, kernels, optimizer and quantisation as sections (llamafactory/v1/config, v1/plugins)."""

from __future__ import annotations

from memcalc.errors import InputError
from memcalc.importers import adapters, fsdp, liger
from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.links import name_deepspeed
from memcalc.importers.rules import switch, unless, whole_number

MARK = "~v1"
"""The fact that a file is of this schema."""
DROPOUT = 0.05
"""The default of ``peft_config.lora_dropout``."""


def _tuning(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("lora", "freeze"):
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: lora, freeze", where=entry.where)
    facts.put("~peft", value=True, where=entry.where)
    facts.put("~lora", entry.word == "lora", entry.where)
    if entry.word == "freeze":
        facts.put("~freeze", value=True, where=entry.where)


def _engine(facts: Facts, entry: Entry) -> None:
    if entry.word in ("fsdp", "fsdp2", "fsdpturbo"):
        facts.put("~fsdp", value=True, where=entry.where)
        facts.put("~fsdp_version", 2, entry.where)
        if entry.word == "fsdpturbo":
            facts.leave(entry, "FSDP2 is counted, with experts shared as all else is")
    elif entry.word == "deepspeed":
        facts.put("~engine", "deepspeed", entry.where)
    else:
        facts.leave(entry)


def _file(facts: Facts, entry: Entry) -> None:
    name_deepspeed(facts, entry.value, where=entry.where, key=entry.key)


def _kernels(facts: Facts, entry: Entry) -> None:
    """Liger's where they are named; training takes the loss of logits, so that the fused one does not run."""
    if "liger" in entry.word:
        liger.without_labels(facts, entry._replace(value=True))
    elif entry.word != "auto":
        facts.leave(entry)


def _optimizer(facts: Facts, entry: Entry) -> None:
    if entry.word == "muon":
        facts.put("optimizer", "muon", entry.where)
    elif not entry.word.startswith("adam"):
        facts.leave(entry)


KEYS: dict[str, Rule] = {
    "train_dataset": lambda facts, entry: facts.put(MARK, value=True, where=entry.where),
    "peft_config.name": _tuning,
    "peft_config.r": whole_number("lora.r"),
    "peft_config.lora_dropout": "lora.dropout",
    "peft_config.target_modules": adapters.targets,
    "peft_config.modules_to_save": adapters.saved,
    "peft_config.use_dora": switch("lora.use_dora"),
    "peft_config.freeze_trainable_layers": whole_number("~trainable_layers"),
    "peft_config.freeze_trainable_modules": unless("all", why="whole layers are counted"),
    "peft_config.freeze_extra_modules": unless(),
    "dist_config.name": _engine,
    "dist_config.config_file": _file,
    "dist_config.reshard_after_forward": fsdp.reshard,
    "dist_config.offload_params": fsdp.offload,
    "dist_config.*": unless(),
    "kernel_config.name": _kernels,
    "kernel_config.*": unless(why="kernels that are not counted"),
    "optim_config.name": _optimizer,
    "quant_config.name": unless("bnb", "auto", why="bitsandbytes is counted"),
    "quant_config.quantization_bit": whole_number("~bits"),
    "quant_config*": unless(),
    "cp_size": whole_number("sharding.cp"),
    "cp_mode": unless("ulysses", "ring"),
    "batching_strategy": unless("normal", why="micro_batch sequences of cutoff_len are counted"),
}

IGNORED = (
    "peft_config.lora_alpha",
    "peft_config.use_rslora",
    "peft_config.adapter_name_or_path",
    "dist_config.dcp_path",
    "dist_config.pin_memory",
    "optim_config*",
)


def finish(facts: Facts, version: str) -> None:
    """Whole tuning in fp32 unless adapters are asked for, one sequence at a time, gradients reduced in fp32."""
    if MARK not in facts.found:
        return
    if facts.found["micro_batch"].is_default:
        facts.override("micro_batch", 1, f"default of {version}, v1")
    if not facts.get("~peft", False):
        facts.put("~lora", value=False, where=facts.where(MARK))
    elif facts.get("~lora", False):
        facts.default("lora.dropout", DROPOUT, f"{version}, v1")
    if facts.found["~mixed_precision"].is_default:
        facts.put("~mixed_precision", "bf16", f"default of {version}, v1")
    if facts.get("~fsdp", False):
        facts.put("sharding.reduce_dtype", "float32", f"{version}, v1")


__all__ = ["IGNORED", "KEYS", "MARK", "finish"]
