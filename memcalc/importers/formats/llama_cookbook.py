"""Arguments of llama-recipes and llama-cookbook (``finetuning.py``): FSDP1, PEFT, quantised weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, when, whole_number

VERSION = "llama-cookbook 0.0.5"
STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its name for a batch."""
    return "batch_size_training" in keys


def _method(_facts: Facts, entry: Entry) -> None:
    if entry.word not in ("lora", "none"):
        raise InputError(f"{entry.key} {entry.value}: its weights are not counted; lora is", where=entry.where)


def _quantised(facts: Facts, entry: Entry) -> None:
    """``4bit``, ``8bit``; a bare switch is 8 bits."""
    bits = {"4bit": 4, "8bit": 8}.get(entry.word) or (8 if entry.is_on else None)
    if bits is not None:
        facts.put("~bits", bits, entry.where)


def _strategy(facts: Facts, entry: Entry) -> None:
    name = str(entry.value).strip().rpartition(".")[2].upper()
    if name not in STRATEGIES:
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: {', '.join(STRATEGIES)}", where=entry.where)
    facts.put("sharding.fsdp_sharding_strategy", name, entry.where)


OF_FSDP: dict[str, Rule] = {
    "pure_bf16": switch("~pure"),
    "sharding_strategy": _strategy,
    "fsdp_activation_checkpointing": switch("~checkpoints"),
    "fsdp_cpu_offload": switch("offload.params", "cpu", None),
    "optimizer": lambda facts, entry: facts.put("~any", "anyprecision" in entry.word, entry.where),
    "hsdp": when("", None, then="replicas of the sharded group"),
}
OF_LORA: dict[str, Rule] = {
    "r": whole_number("lora.r"),
    "target_modules": adapters.targets,
    "lora_dropout": "lora.dropout",
}
KEYS: dict[str, Rule] = {
    "model_name": "model",
    "enable_fsdp": switch("~fsdp1"),
    "batch_size_training": whole_number("micro_batch"),
    "context_length": whole_number("seq_len"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    "use_peft": switch("~lora"),
    "peft_method": _method,
    "quantization": _quantised,
    "use_fp16": switch("dtype", "float16", None),
    "enable_activation_checkpointing": switch("~alone"),
    "freeze_layers": when("", None, then="it is counted as trained"),
    "freeze_LLM_only": when("", None, then="it is counted as trained"),
    "one_gpu": unless("false"),
    **{f"{prefix}{key}": rule for prefix in ("", "fsdp_config.") for key, rule in OF_FSDP.items()},
    **{f"{prefix}{key}": rule for prefix in ("", "lora_config.") for key, rule in OF_LORA.items()},
}


def finish(facts: Facts) -> None:
    """FSDP1 in bf16 with checkpoints of every layer, where it is on; the checkpoint's own dtype otherwise."""
    facts.default("dtype", "bfloat16", f"{VERSION}, which loads the checkpoint's own")
    if facts.get("~fsdp1", False):
        facts.put("~engine", "fsdp1", facts.where("~fsdp1"))
        facts.default("sharding.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", VERSION)
        facts.default("sharding.reduce_dtype", "bfloat16", VERSION)
        if facts.get("~checkpoints", True):
            facts.default("recompute", "full", VERSION)
    elif facts.get("~alone", False):
        facts.put("recompute", "full", facts.where("~alone"))
    if facts.get("~pure", False) and facts.get("~any", False):
        facts.put("optimizer", "adamw_anyprecision", facts.where("~any"))
    if facts.get("~lora", False):
        facts.default("lora.r", 8, VERSION)
        facts.default("lora.dropout", 0.05, VERSION)
        facts.default("lora.target_modules", ("q_proj", "v_proj"), VERSION)
        facts.default("lora.dtype", "float32", VERSION)
    if facts.get("~bits") is not None:
        facts.default("kbit_upcast", value=False, framework=VERSION)


FORMAT = Format(
    name="llama_cookbook",
    title="Arguments of llama-recipes and llama-cookbook",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "tokenizer_name low_cpu_fsdp run_validation batching_strategy gradient_clipping* num_epochs max_*_step num_workers_dataloader lr weight_decay gamma "
        "seed mixed_precision val_batch_size dataset* custom_dataset.* from_peft_checkpoint output_dir num_freeze_layers save_* dist_checkpoint_* "
        "use_fast_kernels use_wandb flop_counter* use_profiler profiler_dir fsdp_config.* lora_config.* lora_alpha enable_memory_monitoring "
        "memory_monitoring_interval activation_checkpointing_use_reentrant"
    ),
    defaults={"micro_batch": 4, "grad_accum": 1, "seq_len": 4096, "optimizer": "adamw_torch"},
    finish=finish,
    order=40,
)  # fmt: skip
