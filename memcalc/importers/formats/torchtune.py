"""torchtune's YAML: OmegaConf with ``_component_``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, when, whole_number

VERSION = "torchtune 0.6"
OPTIMIZERS = {
    "pagedadamw8bit": "paged_adamw_8bit",
    "adamw8bit": "adamw_bnb_8bit",
    "pagedadamw": "paged_adamw_32bit",
    "sgd": "sgd",
    "adamw": "adamw_torch",
    "adam": "adamw_torch",
}
MODULES = {"output_proj": "o_proj"}
MLP = ("gate_proj", "up_proj", "down_proj")


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``_component_`` in any of its sections."""
    return any(isinstance(value, Mapping) and "_component_" in value for value in keys.values())


def _model(facts: Facts, entry: Entry) -> None:
    name = str(entry.value).rpartition(".")[2]
    for prefix in ("qlora_", "lora_"):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            facts.put("~lora", value=True, where=entry.where)
            if prefix == "qlora_":
                facts.put("~bits", 4, entry.where)
                facts.put("~double_quant", value=True, where=entry.where)
    facts.put("model", catalogue_name(name), entry.where)


def catalogue_name(component: str) -> str:
    """The catalogue's name for torchtune's builder of a size.

    >>> catalogue_name("llama3_1_8b"), catalogue_name("llama2_7b"), catalogue_name("qwen2_5_7b_instruct"), catalogue_name("llama3_8b")
    ('llama-3.1-8b', 'llama-2-7b', 'qwen2.5-7b', 'llama-3-8b')
    """
    name = re.sub(r"_(instruct|base|reward|classifier|it)$", "", component)
    name = re.sub(r"(?<=\d)_(?=\d+_)", ".", name)
    name = re.sub(r"^(llama)(?=\d)", r"\1-", name)
    return re.sub(r"(?<=\d)_(?=\d+b)", ".", name).replace("_", "-") if name.count("_") > 1 else name.replace("_", "-")


def _optimizer(facts: Facts, entry: Entry) -> None:
    name = str(entry.value).rpartition(".")[2].lower()
    facts.put("~optimizer", OPTIMIZERS.get(name, name), entry.where)


def _loss(facts: Facts, entry: Entry) -> None:
    name = str(entry.value).rpartition(".")[2].lower()
    facts.put("loss", "chunked" if "linear" in name or "chunked" in name else "cross_entropy", entry.where)


KEYS: dict[str, Rule] = {
    "model._component_": _model,
    "model.lora_attn_modules": lambda facts, entry: facts.put("~attention_modules", entry.value, entry.where),
    "model.apply_lora_to_mlp": switch("~mlp_modules"),
    "model.apply_lora_to_output": when("", None, then="an adapter on the head"),
    "model.lora_rank": whole_number("lora.r"),
    "model.lora_dropout": "lora.dropout",
    "model.use_dora": switch("lora.use_dora"),
    "model.quantize_base": switch("~bits", 4, None),
    "tokenizer.max_seq_len": whole_number("seq_len"),
    "batch_size": whole_number("micro_batch"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    "optimizer._component_": _optimizer,
    "optimizer.fused": switch("~fused"),
    "optimizer.momentum": "momentum",
    "optimizer_in_bwd": when("", None, then="a step for each gradient as it arises, so that one alone is alive"),
    "loss._component_": _loss,
    "enable_activation_checkpointing": switch("recompute", "full", "none"),
    "enable_activation_offloading": switch("offload.activations", "cpu", None),
    "dtype": "dtype",
    "compile": when("", None, then="compiled code keeps other tensors than the modules that are counted"),
    "fsdp_cpu_offload": switch("offload.params", "cpu", None),
    "fsdp_reshard_after_forward": "sharding.reshard_after_forward",
    "custom_sharded_layers": lambda facts, entry: facts.put("sharding.fsdp_wrap_ends", bool(entry.value), entry.where),
    "tensor_parallel_dim": whole_number("sharding.tp"),
    "context_parallel_dim": whole_number("sharding.cp"),
    "data_parallel_shard_dim": whole_number("~dp_shard"),
    "data_parallel_replicate_dim": whole_number("~dp_replicate"),
}


def finish(facts: Facts) -> None:
    """The optimizer with its kernel, the modules with adapters, FSDP2 where there are several cards."""
    if "~optimizer" in facts.found:
        name = facts.get("~optimizer")
        fused = name == "adamw_torch" and facts.get("~fused", False)
        facts.put("optimizer", f"{name}_fused" if fused else name, facts.where("~optimizer", "~fused"))
    if "~attention_modules" in facts.found and facts.get("~lora", False):
        names = [MODULES.get(str(name), str(name)) for name in facts.get("~attention_modules")]
        names += MLP if facts.get("~mlp_modules", False) else ()
        facts.put("lora.target_modules", names, facts.where("~attention_modules", "~mlp_modules"))
        facts.put("lora.dtype", facts.get("dtype", "bfloat16"), facts.where("dtype"))
    if facts.get("~bits") == 4:
        facts.default("kbit_upcast", value=False, framework=VERSION)
    if facts.get("~dp_shard") == -1:
        del facts.found["~dp_shard"]
    if (facts.get("~gpus_per_node") or 1) > 1 or facts.get("~world", 1) > 1 or "sharding.fsdp_wrap_ends" in facts.found:
        facts.default("sharding.engine", "fsdp2", VERSION)
        facts.default("sharding.fsdp_wrap_ends", value=False, framework=VERSION)


FORMAT = Format(
    name="torchtune",
    title="torchtune YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "output_dir tokenizer.* checkpointer.* resume_from_checkpoint save_adapter_weights_only dataset* seed shuffle run_val_every_n_steps "
        "batch_size_val optimizer.* lr_scheduler.* loss.* epochs max_steps_per_epoch clip_grad_norm metric_logger.* log_* device profiler.* "
        "low_cpu_ram model.lora_alpha model.*checkpoint* cudnn_* collate_fn save_every_n_steps keep_last_n_checkpoints enable_async_checkpointing "
        "parallelize_plan*"
    ),
    defaults={"micro_batch": 2, "grad_accum": 1, "dtype": "bfloat16", "recompute": "none"},
    finish=finish,
    order=35,
    notes="Everything is held in `dtype`: weights, gradients and states. Cards come from `tune run --nproc_per_node`; several are FSDP2.",
)  # fmt: skip
