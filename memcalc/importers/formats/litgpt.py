"""LitGPT's YAML (``litgpt finetune_lora --config``), and the flags of the same names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule, whole
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, whole_number

VERSION = "LitGPT 0.5"
TARGETS = {
    "lora_query": ("q_proj",), "lora_key": ("k_proj",), "lora_value": ("v_proj",), "lora_projection": ("o_proj",),
    "lora_mlp": ("gate_proj", "up_proj", "down_proj"), "lora_head": ("lm_head",),
}  # fmt: skip
"""Linear layers that get adapters, by the switch for them; q, k and v are one layer of LitGPT, whose adapters are as large as those of three."""
BY_DEFAULT = ("lora_query", "lora_value")
_NEOX = {"q_proj": "query_key_value", "k_proj": "query_key_value", "v_proj": "query_key_value", "o_proj": "dense", "gate_proj": "dense_h_to_4h",
         "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"}  # fmt: skip
_PHI_3 = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}
_PHI = {"o_proj": "dense", "gate_proj": "fc1", "up_proj": "fc1", "down_proj": "fc2"}
NAMES = ((r"phi-[12]", _PHI), (r"falcon|pythia|neox|stablelm-base|dolly|redpajama", _NEOX), (r"phi-[34]", _PHI_3))
"""What transformers calls these layers of some families."""
FUSED = ("query_key_value", "qkv_proj", "gate_up_proj")
KNOWN = r"llama|mistral|qwen2|qwen3|gemma-[27]b|phi-[12]|pythia|stablelm-base"
UNKNOWN = r"mixtral|moe|-a\d+b|llama-4|vision|vl"
"""Models whose modules of LitGPT's are transcribed, and those among them that are not."""
OPTIMIZERS = {"adamw": "adamw_torch", "adam": "adamw_torch", "sgd": "sgd", "adamw8bit": "adamw_bnb_8bit", "pagedadamw8bit": "paged_adamw_8bit"}
PRECISIONS = {"bf16": "bfloat16", "16": "float16", "32": "float32"}


def recognise(keys: Mapping[str, Any]) -> bool:
    """By what it trains from beside ``train``."""
    train = keys.get("train")
    return isinstance(train, Mapping) and "micro_batch_size" in train and any(key in keys for key in ("checkpoint_dir", "model_name", "lora_query"))


def _checkpoint(facts: Facts, entry: Entry) -> None:
    """``checkpoints/owner/name``, as ``litgpt download`` lays it down, or ``owner/name`` itself."""
    facts.put("model", re.sub(r"^(?:\./)?checkpoints/", "", str(entry.value)), entry.where)


def _named(facts: Facts, entry: Entry) -> None:
    """Only ``litgpt pretrain`` takes a model by its name."""
    facts.put("model", str(entry.value), entry.where)
    facts.put("~recipe", "pretrain", entry.where)


def _precision(facts: Facts, entry: Entry) -> None:
    kind, _, held = entry.word.partition("-")
    low = PRECISIONS.get(kind)
    if low is None or held not in ("true", "mixed", ""):
        raise InputError(f"precision is {entry.value!r}; accepted: bf16-true, bf16-mixed, 16-true, 16-mixed, 32-true", where=entry.where)
    mixed = held == "mixed"
    facts.put("dtype", "float32" if mixed else low, entry.where)
    if mixed:
        facts.put("autocast", low, entry.where)


def _quantised(facts: Facts, entry: Entry) -> None:
    name = entry.word.removeprefix("bnb.")
    if name not in ("nf4", "nf4-dq", "fp4", "fp4-dq", "int8-training", "int8"):
        raise InputError(f"quantize is {entry.value!r}; accepted: bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq, bnb.int8-training", where=entry.where)
    facts.put("quantization", name.removesuffix("-training"), entry.where)


def _optimizer(facts: Facts, entry: Entry) -> None:
    name = str(entry.value).rpartition(".")[2].lower()
    facts.put("optimizer", OPTIMIZERS.get(name, name), entry.where)


def _devices(facts: Facts, entry: Entry) -> None:
    if entry.word in ("auto", "-1"):
        facts.leave(entry, "a number that is found out at launch; give --gpus")
    else:
        facts.put("~gpus_per_node", entry.number, entry.where)


KEYS: dict[str, Rule] = {
    "checkpoint_dir": _checkpoint,
    "model_name": _named,
    "model_config": unless(why="it is built from sizes; give the model"),
    "precision": _precision,
    "quantize": _quantised,
    "devices": _devices,
    "num_nodes": whole_number("~nodes"),
    "lora_r": whole_number("lora.r"),
    "lora_dropout": "lora.dropout",
    **{key: switch(f"~{key}") for key in TARGETS},
    "train.global_batch_size": whole_number("~litgpt_batch"),
    "train.micro_batch_size": whole_number("micro_batch"),
    "train.max_seq_length": whole_number("seq_len"),
    "train.tie_embeddings": unless("false"),
    "optimizer": _optimizer,
    "optimizer.class_path": _optimizer,
    "optimizer.init_args.momentum": "momentum",
}


def finish(facts: Facts) -> None:
    """Adapters by their switches, and who shards: FSDP2 under adapters, FSDP1 otherwise; blocks run again in backward but in pretraining."""
    recipe = str(facts.get("~recipe", "finetune_lora" if any(f"~{key}" in facts.found for key in TARGETS) else "finetune_full"))
    if recipe not in ("finetune_lora", "finetune_full", "pretrain"):
        raise InputError(f"litgpt {recipe} is not counted; finetune_lora, finetune_full and pretrain are", where="command")
    facts.default("dtype", "bfloat16", VERSION)
    name = str(facts.get("model", "")).lower()
    own = recipe != "pretrain" and "autocast" not in facts.found and re.search(KNOWN, name) is not None and re.search(UNKNOWN, name) is None
    if recipe == "finetune_lora":
        _adapters(facts, own=own)
    if "quantization" in facts.found:
        facts.put("optimizer", "paged_adamw_32bit", f"{VERSION} beside {facts.where('quantization')}")
        facts.default("kbit_upcast", value=False, framework=VERSION)
    if facts.cards > 1:
        facts.default("sharding.engine", "fsdp2" if recipe == "finetune_lora" else "fsdp1", VERSION)
    if facts.cards > 1 and recipe != "pretrain":
        facts.default("recompute", "full", f"{VERSION} on several cards")
    if recipe == "pretrain":
        facts.default("sharding.fsdp_sharding_strategy", "HYBRID_SHARD", VERSION)
        facts.default("torch_compile", value=True, framework=VERSION)
    steps = facts.get("~litgpt_batch") // max(facts.cards, 1) // max(whole(facts.get("micro_batch"), name="train.micro_batch_size"), 1)
    if steps < 1:
        raise InputError(f"a global batch of {facts.get('~litgpt_batch')} is none for micro-batches on {facts.cards} cards", where=facts.where("~litgpt_batch"))
    facts.put("grad_accum", steps, facts.where("~litgpt_batch", "micro_batch"))
    if own:
        facts.default("code", "litgpt", VERSION)
    else:
        facts.assumed.append(f"{VERSION}: transformers' modules stand for its own")


def _adapters(facts: Facts, *, own: bool) -> None:
    where = facts.where("~lora_query")
    modules = [name for key, found in TARGETS.items() if facts.get(f"~{key}", key in BY_DEFAULT) for name in found]
    fused = next((names_ for pattern, names_ in NAMES if re.search(pattern, str(facts.get("model")).lower())), {})
    fused = {name: whole for name, whole in fused.items() if not (own and str(whole).endswith(FUSED))}
    if any(str(fused.get(name)).endswith(FUSED) for name in modules):
        facts.unused.append(f"{where}: LitGPT adapts parts of the model's fused layers; an adapter of the whole is counted")
    facts.put("~lora", value=True, where=where)
    facts.default("lora.r", 8, VERSION)
    facts.default("lora.dropout", 0.05, VERSION)
    facts.put("lora.target_modules", list(dict.fromkeys(fused.get(name, name) for name in modules)), where)
    facts.put("lora.dtype", facts.get("dtype"), facts.where("dtype"))
    if not own:
        facts.put("loss", "chunked_output", f"{VERSION}, which takes the head's output in parts")


FORMAT = Format(
    name="litgpt",
    title="LitGPT YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "out_dir data data.* train.* eval.* log.* logger_name seed lora_alpha optimizer.init_args.* resume initial_checkpoint_dir tokenizer_dir access_token "
        "ops config"
    ),
    defaults={"micro_batch": 1, "~litgpt_batch": 16, "optimizer": "adamw_torch"},
    finish=finish,
    order=25,
    notes="`precision: bf16-true` holds all in bf16, adapters too; `bf16-mixed` weights in fp32. Several cards are FSDP, and blocks run again in backward.",
)  # fmt: skip
