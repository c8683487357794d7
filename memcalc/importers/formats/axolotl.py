"""axolotl's YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, fsdp, liger, training_arguments
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule, number
from memcalc.importers.format import Format
from memcalc.importers.rules import Write, attention, each, names, switch, unless, when, whole_number, word

VERSION = "axolotl 0.13"


KERNELS = ("mlp", "qkv", "o")
"""For adapters, by what they take the place of."""


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``base_model`` beside its other keys."""
    return "base_model" in keys and any(key in keys for key in ("micro_batch_size", "datasets", "sequence_len", "adapter", "load_in_4bit"))


def _adapter(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("lora", "qlora"):
        raise InputError(f"adapter is {entry.value!r}; lora and qlora are counted", where=entry.where)
    facts.put("~adapter", entry.word, entry.where)
    facts.put("~lora", value=True, where=entry.where)
    if entry.word == "qlora":
        facts.put("~bits", 4, entry.where)


def _checkpointing(facts: Facts, entry: Entry) -> None:
    offloaded = entry.word in ("offload", "offload_disk")
    facts.put("recompute", "full" if offloaded or entry.is_on else "none", entry.where)
    if offloaded:
        facts.put("offload.activations", "cpu", entry.where)


def _activation_offloading(facts: Facts, entry: Entry) -> None:
    if entry.word in ("legacy", "disk", "hidden_states") or entry.is_on:
        facts.put("offload.activations", "cpu", entry.where)


def _plugins(facts: Facts, entry: Entry) -> None:
    for plugin in entry.value if isinstance(entry.value, list) else [entry.value]:
        if "cut_cross_entropy" in str(plugin):
            facts.derive("~without_logits", value=True, where=entry.where)
        elif "liger" not in str(plugin).lower():  # which of Liger's kernels run is said by keys of their own
            facts.leave(entry._replace(value=plugin))


def _liger(*names: str) -> Write:
    """One of Liger's kernels, which are off unless they are asked for one by one."""

    def write(facts: Facts, entry: Entry) -> None:
        facts.put(liger.ON, value=True, where=entry.where)
        for name in names:
            facts.put(f"liger.{name}", entry.is_on, entry.where)

    return write


def _flash(facts: Facts, entry: Entry) -> None:
    if entry.is_on:
        facts.put("attention", "flash_attention_2", entry.where)


KEYS: dict[str, Rule] = {
    **adapters.KEYS,
    "base_model": "model",
    "sequence_len": whole_number("seq_len"),
    "micro_batch_size": whole_number("micro_batch"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    "batch_size": whole_number("~global_batch"),
    "adapter": _adapter,
    "lora_target_linear": adapters.all_linear,
    "peft_use_dora": switch("lora.use_dora"),
    "peft_layers_to_transform": adapters.layers,
    "optimizer": training_arguments.optimizer,
    "bf16": training_arguments.mixed("bf16"),
    "fp16": switch("~mixed_precision", "fp16", None),  # bf16: auto stays what it is beside fp16: false
    "bfloat16": switch("~load_dtype", "bfloat16", None),
    "float16": switch("~load_dtype", "float16", None),
    "torch_dtype": training_arguments.load_dtype,
    "gradient_checkpointing": _checkpointing,
    "activation_offloading": _activation_offloading,
    "layer_offloading": when("", None, then="frozen layers wait on the host"),
    "attn_implementation": attention,
    "flash_attention": _flash,
    "sdp_attention": switch("attention", "sdpa", None),
    "eager_attention": switch("attention", "eager", None),
    "xformers_attention": when("", None),
    "deepspeed": training_arguments.KEYS["deepspeed"],
    "fsdp": fsdp.words,
    "fsdp_version": fsdp.version,
    **fsdp.keys_below("fsdp_config."),
    "dp_shard_size": whole_number("~dp_shard"),
    "dp_replicate_size": whole_number("~dp_replicate"),
    "tensor_parallel_size": whole_number("sharding.tp"),
    "context_parallel_size": whole_number("sharding.cp"),
    "sequence_parallel_degree": whole_number("sharding.cp"),
    "expert_parallel_size": whole_number("sharding.ep"),
    "plugins": _plugins,
    **{f"liger_{name}": _liger(name) for name in ("rope", "rms_norm", "layer_norm", "cross_entropy")},
    "liger_fused_linear_cross_entropy": each(_liger("fused_linear_cross_entropy"), switch("loss", "fused_linear", None)),
    "liger_glu_activation": _liger("swiglu", "geglu"),
    "liger_swiglu": _liger("swiglu", "geglu"),
    "cut_cross_entropy": switch("~without_logits"),
    "liger_*": unless("false"),
    "chunked_cross_entropy": switch("loss", "chunked", None),
    "tiled_mlp": when("", None),
    "embeddings_skip_upcast": switch("kbit_upcast", off=None, on=False),
    "rl": word("task", {name: name for name in ("dpo", "kto", "orpo", "simpo", "grpo", "gspo")} | {"ipo": "dpo", "gdpo": "grpo"}),
    "trl*": unless(),
    "vllm*": unless(),
    "relora*": unless("false", 0),
    "unfrozen_parameters": unless(why="all weights are counted as trained"),
    "gptq": when("quantization", "gptq"),
    "torch_compile": word("torch_compile", {"true": True, "false": None, "auto": None}),
    "gradient_checkpointing_kwargs.use_reentrant": switch("~reentrant"),
    "neftune_noise_alpha": unless(0),
    "use_ray": unless("false"),
    **{f"lora_{name}_kernel": switch(f"~{name}_kernel") for name in KERNELS},
    "reward_model": switch("~reward"),
    "bnb_config_kwargs.bnb_4bit_quant_storage": "~quant_storage",
    "bnb_config_kwargs.bnb_4bit_use_double_quant": switch("~double_quant"),
    "bnb_config_kwargs.bnb_4bit_quant_type": "~quant_type",
    "quantize_moe_experts": when("", None),
    **dict.fromkeys(("use_kernels", "use_scattermoe", "use_sonicmoe"), when("", None, then="kernels that keep other tensors than the modules counted")),
}


def _quantised(facts: Facts) -> None:
    """4 bits go with qlora and 8 with lora, and quantised weights with one of the two (loaders/model.py, schemas/peft.py)."""
    bits, adapter = facts.get("~bits"), facts.get("~adapter")
    if bits is None or facts.get("task") == "inference":
        return
    where = facts.where("~bits")
    if adapter is None:
        adapter = "qlora" if bits == 4 else "lora"
        facts.assumed.append(f"adapter {adapter}: {VERSION} trains no weights in {bits} bits without one, and refuses the file ({where})")
        facts.put("~lora", value=True, where=where)
    elif adapter == "lora" and bits == 4:
        facts.assumed.append(f"no quantization: {VERSION} packs weights in 4 bits for adapter qlora alone, and for lora casts them to fp32 ({where})")
        del facts.found["~bits"]
        if not facts.get("~fsdp", False):
            facts.override("~load_dtype", "float32", where)


def _kernels(facts: Facts) -> None:
    """Kernels for adapters: those that are asked for, or all where none is spoken of and nothing stands against them (check_auto_enable_lora_kernels)."""
    given = [f"~{name}_kernel" for name in KERNELS if f"~{name}_kernel" in facts.found]
    asked = tuple(name for name in KERNELS if facts.get(f"~{name}_kernel", False))
    if not facts.get("~lora", False):
        return
    if asked:
        facts.put("lora.kernels", asked, facts.where(*given))
    in_8_bits = facts.get("~bits") == 8 and facts.get("~adapter") == "lora"
    may = not given and not in_8_bits and facts.get("task", "train") == "train" and facts.get("~engine") != "fsdp1"
    dropout = facts.found.get("lora.dropout")
    if may and dropout is not None and number(dropout.value) == 0:
        facts.default("lora.kernels", KERNELS, f"{VERSION} for adapters with lora_dropout 0")


def finish(facts: Facts) -> None:
    """FSDP by its version, bf16 where the card has it, twice quantised 4-bit weights."""
    _quantised(facts)
    if facts.get("~without_logits", False):
        facts.put("loss", "cut_cross_entropy", facts.where("~without_logits"))
    for name in liger.NAMES if facts.get(liger.ON) else ():
        facts.derive(f"liger.{name}", value=False, where=f"{VERSION}, which wants each by its name")
    if "~fsdp_version" in facts.found or any(name in facts.found for name in ("~dp_shard", "sharding.reshard_after_forward")):
        facts.put("~fsdp", value=True, where=facts.where("~fsdp_version", "~dp_shard", "sharding.reshard_after_forward"))
    fsdp.finish(facts, default_version=1, framework=VERSION)
    _kernels(facts)
    if facts.get("~bits") is not None:
        facts.default("kbit_upcast", value=False, framework=f"{VERSION}, which casts norms and tables back beside adapters (loaders/model.py)")
    shard, replicate = facts.get("~dp_shard"), facts.get("~dp_replicate", 1)
    if shard:
        total = shard * max(replicate, 1) * facts.get("sharding.tp", 1) * facts.get("sharding.cp", 1)
        facts.default("~world", total, f"{VERSION}: the product of its degrees")
    facts.default("~load_dtype", "bfloat16", VERSION)
    facts.default("~mixed_precision", "bf16", VERSION)
    facts.default("~double_quant", value=True, framework=VERSION)
    facts.default("~quant_storage", "bfloat16", VERSION)
    if facts.get("~engine") is None and facts.get("~lora") is None and facts.get("~mixed_precision") == "bf16":
        facts.put("~load_dtype", "bfloat16", VERSION)


FORMAT = Format(
    name="axolotl",
    title="axolotl YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *adapters.IGNORED,
        *fsdp.ignored_below("fsdp_config."),
        *names(
            "model_type tokenizer* strict eot_tokens pretraining_dataset* reinit_weights evaluation_strategy use_wandb use_otel* otel_* use_swanlab swanlab_* "
            "datasets* test_datasets* dataset_* val_set_size output_dir chat_template* *sample_packing* wandb_* mlflow_* "
            "num_epochs max_steps lr_scheduler* learning_rate train_on_inputs group_by_length tf32 logging_steps warmup_* evals_per_epoch eval_* "
            "saves_per_epoch save_* weight_decay special_tokens* resume_from_checkpoint auto_resume_* gradient_checkpointing_kwargs* lora_model_dir "
            "trust_remote_code early_stopping_patience local_rank debug seed hub_* push_* base_model_config base_model_ignore_patterns revision* "
            "pad_to_sequence_len adam_* max_grad_norm loss_watchdog_* is_*_derived_model tokens shuffle_* ddp_* dataloader_* excess_length_strategy "
            "lora_fan_in_fan_out flash_attn_* use_tensorboard remove_unused_columns processor_type skip_prepare_dataset image_size cosine_* "
            "include_tokens* heads_k_stride ring_attn_func bnb_config_kwargs* added_tokens_overrides* roles* field_* message_* type deepspeed_* "
            "experimental_* cls_*"
        ),
    ),
    defaults={
        "micro_batch": 1,
        "grad_accum": 1,
        "optimizer": "adamw_torch_fused",
        "seq_len": 512,
        "recompute": "none",
        "lora.r": 8,
        "lora.target_modules": "all-linear",
    },
    finish=finish,
    order=30,
    notes="`bf16: auto` counts as bf16. Cards come from the launcher, or are the product of its degrees.",
)
