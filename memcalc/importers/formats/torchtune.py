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
FAMILIES = {
    "code_llama2": "codellama-{}", "gemma": "gemma-{}", "gemma2": "gemma-2-{}", "llama2": "llama-2-{}", "llama3": "llama-3-{}", "llama3_1": "llama-3.1-{}",
    "llama3_2": "llama-3.2-{}", "llama3_2_vision": "llama-3.2-{}-vision", "llama3_3": "llama-3.3-{}", "llama4_maverick": "llama-4-maverick",
    "llama4_scout": "llama-4-scout", "mistral": "mistral-{}", "phi3": "phi-3-{}", "phi4": "phi-4", "qwen2": "qwen2-{}", "qwen2_5": "qwen2.5-{}",
    "qwen3": "qwen3-{}",
}  # fmt: skip
"""Catalogue names by torchtune's families; the size goes in between."""
FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}
"""Phi's layers that torchtune writes as several."""
MLP = ("gate_proj", "up_proj", "down_proj")


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``_component_`` in any of its sections."""
    return any(isinstance(value, Mapping) and "_component_" in value for value in keys.values())


def _model(facts: Facts, entry: Entry) -> None:
    builder = str(entry.value).rpartition(".")[2]
    if builder.startswith(("lora_", "qlora_")):
        facts.put("~lora", value=True, where=entry.where)
    if builder.startswith("qlora_"):
        facts.put("~bits", 4, entry.where)
        facts.put("~double_quant", value=True, where=entry.where)
    name = catalogue_name(builder)
    if name is None:
        facts.leave(entry, "it is built from sizes; give the model")
    else:
        facts.put("model", name, entry.where)


def catalogue_name(builder: str) -> str | None:
    """The catalogue's name for torchtune's builder of a size; None where it builds from sizes.

    >>> catalogue_name("llama3_1_8b"), catalogue_name("lora_qwen2_5_0_5b_instruct"), catalogue_name("llama4_scout_17b_16e"), catalogue_name("llama2")
    ('llama-3.1-8b', 'qwen2.5-0.5b', 'llama-4-scout', None)
    """
    name = re.sub(r"^q?lora_|_(instruct|base|it|reward|classifier)(?=_|$)", "", builder)
    family = next((family for family in sorted(FAMILIES, key=len, reverse=True) if name.startswith(f"{family}_")), None)
    if family is None:
        return None
    size = name.removeprefix(f"{family}_").replace("_", ".")
    return FAMILIES[family].format(size)


def _optimizer(facts: Facts, entry: Entry) -> None:
    name = str(entry.value).rpartition(".")[2].lower()
    facts.put("~optimizer", OPTIMIZERS.get(name, name), entry.where)


def _loss(facts: Facts, entry: Entry) -> None:
    name = str(entry.value).rpartition(".")[2].lower()
    facts.put("loss", "chunked_output" if "linear" in name or "chunked" in name else "cross_entropy", entry.where)


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
    "compile": switch("torch_compile", off=None),
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
        modules = [MODULES.get(str(name), str(name)) for name in facts.get("~attention_modules")]
        modules += MLP if facts.get("~mlp_modules", False) else ()
        where = facts.where("~attention_modules", "~mlp_modules")
        if str(facts.get("model")).startswith(("phi-3", "phi-4")):
            modules = list(dict.fromkeys(FUSED.get(name, name) for name in modules))
            facts.unused.append(f"{where}: torchtune adapts the parts of Phi's fused layers one by one; an adapter of the whole is counted")
        facts.put("lora.target_modules", modules, where)
        facts.put("lora.dtype", facts.get("dtype", "bfloat16"), facts.where("dtype"))
    if facts.get("~bits") == 4:
        facts.default("kbit_upcast", value=False, framework=VERSION)
    if facts.get("~dp_shard") == -1:
        del facts.found["~dp_shard"]
    if facts.cards > 1 or {"sharding.fsdp_wrap_ends", "offload.params"} & set(facts.found):
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
