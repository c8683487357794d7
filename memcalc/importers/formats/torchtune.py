"""torchtune's YAML: OmegaConf with ``_component_``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, whole_number

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
KNOWN = ("llama-2", "llama-3", "codellama", "mistral", "qwen2", "qwen3", "gemma-2", "gemma-7b", "phi-3", "phi-4")
"""Catalogue names whose modules are transcribed begin so."""
PREFERENCES = {"dpo": "dpo", "rso": "dpo", "ipo": "dpo", "simpo": "simpo"}
"""Tasks by what stands in the name of a loss."""
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
    preferred = next((task for mark, task in PREFERENCES.items() if mark in name), None)
    if preferred is not None:
        facts.put("task", preferred, entry.where)
    elif "grpo" in name or "ppo" in name:
        facts.put("~reinforced", value=True, where=entry.where)
    else:
        known = {"linear": "linear_cross_entropy", "chunked": "chunked_output"}
        facts.put("loss", next((loss for mark, loss in known.items() if mark in name), "cross_entropy"), entry.where)


def _attention_modules(facts: Facts, entry: Entry) -> None:
    if not isinstance(entry.value, (list, str)):
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: a list of names", where=entry.where)
    facts.put("~attention_modules", entry.value if isinstance(entry.value, list) else entry.value.strip("[]").replace(",", " ").split(), entry.where)


def _teacher(facts: Facts, entry: Entry) -> None:
    facts.put("task", "distill", entry.where)
    name = catalogue_name(str(entry.value).rpartition(".")[2])
    if name is None:
        facts.leave(entry, "it is built from sizes; give the teacher")
    else:
        facts.put("roles.teacher.model", name, entry.where)


def _longest(facts: Facts, entry: Entry) -> None:
    """Of generation and evaluation; training's stands with its tokenizer."""
    facts.put("~longest", entry.number, entry.where)


KEYS: dict[str, Rule] = {
    "model._component_": _model,
    "model.lora_attn_modules": _attention_modules,
    "model.apply_lora_to_mlp": switch("~mlp_modules"),
    "model.apply_lora_to_output": switch("~head_module"),
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
    "optimizer_in_bwd": switch("~in_backward"),
    "loss._component_": _loss,
    "enable_activation_checkpointing": switch("recompute", "full", "none"),
    "enable_activation_offloading": switch("offload.activations", "cpu", None),
    "dtype": "dtype",
    "compile": switch("torch_compile", off=None),
    "dataset.packed": switch("packing", off=None),
    "ac_mode": unless("none", why="every n-th layer; all are counted"),
    "quantizer._component_": unless(why="fake quantisation keeps copies of its own"),
    "teacher_model._component_": _teacher,
    "policy_model._component_": _model,
    "ppo_epochs": lambda facts, entry: facts.put("~reinforced", value=True, where=entry.where),
    "prompt*": lambda facts, entry: facts.put("~generates", value=True, where=entry.where),
    "max_new_tokens": whole_number("~new_tokens"),
    "max_seq_length": _longest,
    "fsdp_cpu_offload": switch("offload.params", "cpu", None),
    "fsdp.cpu_offload": switch("offload.params", "cpu", None),
    "fsdp_reshard_after_forward": "sharding.reshard_after_forward",
    "custom_sharded_layers": lambda facts, entry: facts.put("sharding.fsdp_wrap_ends", bool(entry.value), entry.where),
    "tensor_parallel_dim": whole_number("sharding.tp"),
    "context_parallel_dim": whole_number("sharding.cp"),
    "data_parallel_shard_dim": whole_number("~dp_shard"),
    "data_parallel_replicate_dim": whole_number("~dp_replicate"),
}


def finish(facts: Facts) -> None:
    """The optimizer with its kernel, the modules with adapters, FSDP2 where there are several cards.

    Raises:
        InputError: a configuration that neither trains on labels or preferences nor generates.
    """
    if "~reinforced" in facts.found:
        raise InputError("is of PPO or GRPO, whose recipes are not known here; say task: ppo or grpo, roles and rollout", where=facts.where("~reinforced"))
    if "~optimizer" not in facts.found:
        _generates(facts)
        return
    own = _own(facts)
    if "~optimizer" in facts.found:
        name = facts.get("~optimizer")
        fused = name == "adamw_torch" and facts.get("~fused", False)
        facts.put("optimizer", f"{name}_fused" if fused else name, facts.where("~optimizer", "~fused"))
    if "~attention_modules" in facts.found and facts.get("~lora", False):
        modules = [MODULES.get(str(name), str(name)) for name in facts.get("~attention_modules")]
        modules += MLP if facts.get("~mlp_modules", False) else ()
        modules += ["lm_head"] if facts.get("~head_module", False) else []
        where = facts.where("~attention_modules", "~mlp_modules")
        if not own and str(facts.get("model")).startswith(("phi-3", "phi-4")):
            modules = list(dict.fromkeys(FUSED.get(name, name) for name in modules))
            facts.unused.append(f"{where}: torchtune adapts the parts of Phi's fused layers one by one; an adapter of the whole is counted")
        facts.put("lora.target_modules", modules, where)
        facts.put("lora.dtype", facts.get("dtype", "bfloat16"), facts.where("dtype"))
    if facts.get("~bits") == 4:
        facts.default("kbit_upcast", value=False, framework=VERSION)
    if facts.get("~in_backward", False):
        _in_backward(facts)
    if facts.get("~dp_shard") == -1:
        del facts.found["~dp_shard"]
    if facts.cards > 1 or {"sharding.fsdp_wrap_ends", "offload.params"} & set(facts.found):
        facts.default("sharding.engine", "fsdp2", VERSION)
        facts.default("sharding.fsdp_wrap_ends", value=False, framework=VERSION)


def _own(facts: Facts) -> bool:
    """Whether torchtune's modules run, which are known of most of its models in training; else transformers' stand for them, without its own loss."""
    model = str(facts.get("model", "llama"))
    known = model.startswith(KNOWN) and "vision" not in model and not (model.startswith("gemma-2-") and facts.get("torch_compile"))
    alone = facts.get("task", "train") == "train" and not any(int(facts.get(f"sharding.{degree}", 1)) > 1 for degree in ("tp", "cp"))
    if known and alone:
        facts.default("code", "torchtune", VERSION)
        return True
    if facts.get("loss") == "linear_cross_entropy":
        facts.put("loss", "chunked_output", facts.where("loss"))
        facts.unused.append(f"{facts.where('loss')}: LinearCrossEntropyLoss of transformers' modules; logits of all pieces together are counted")
    return False


def _in_backward(facts: Facts) -> None:
    if facts.cards > 1 or facts.get("task", "train") != "train":
        facts.unused.append(f"{facts.where('~in_backward')}: optimizer_in_bwd on several cards: all gradients are counted, of which one unit's are alive")
    else:
        facts.put("optimizer_in_backward", value=True, where=facts.where("~in_backward"))


def _generates(facts: Facts) -> None:
    """``tune run generate``; evaluation and quantisation are neither of memcalc's tasks."""
    if "~generates" not in facts.found:
        raise InputError("trains nothing and generates nothing: a configuration with an optimizer, or with a prompt, was expected", where=facts.files[-1][0])
    facts.put("task", "inference", facts.where("~generates"))
    facts.put("micro_batch", 1, facts.where("~generates"))
    for name, key in (("~new_tokens", "new_tokens"), ("~longest", "seq_len")):
        if name in facts.found:
            facts.put(key, facts.get(name), facts.where(name))
    for name in ("grad_accum", "recompute"):
        facts.found.pop(name, None)


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
        "parallelize_plan* tensor_parallel_plan* teacher_checkpointer.* ref_checkpointer.* quantizer.groupsize kd_ratio kd_loss.* temperature top_k "
        "enable_kv_cache use_distributed_state_dict save_every_n_epochs base_model_path name"
    ),
    defaults={"micro_batch": 2, "grad_accum": 1, "dtype": "bfloat16", "recompute": "none"},
    finish=finish,
    order=35,
    notes="Everything is held in `dtype`: weights, gradients and states. Cards come from `tune run --nproc_per_node`; several are FSDP2.",
)  # fmt: skip
