"""LLaMA-Factory's YAML and arguments, the Megatron keys of its mcore_adapter among them; its v1 schema, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, liger, training_arguments
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import _llamafactory_v1, megatron, vllm
from memcalc.importers.rules import attention, names, switch, unless, when, whole_number

VERSION = "LLaMA-Factory 0.9.6"
ANSWER = 1024
"""The default of ``max_new_tokens``."""
FREEZE_LAYERS = 2
"""The default of ``freeze_trainable_layers``."""
MEGATRON = ("pipeline_model_parallel_size", "expert_model_parallel_size", "use_distributed_optimizer", "virtual_pipeline_model_parallel_size", "use_mca")


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``stage`` and ``finetuning_type``; v1 by its data and ``dist_config``."""
    return (
        ("stage" in keys and ("finetuning_type" in keys or "cutoff_len" in keys or "template" in keys))
        or ("finetuning_type" in keys)
        or ("infer_backend" in keys and "model_name_or_path" in keys)
        or "export_dir" in keys
        or ("peft_config" in keys and isinstance(keys.get("model"), str))
        or ("train_dataset" in keys and ("dist_config" in keys or "cutoff_len" in keys))
    )


def _stage(facts: Facts, entry: Entry) -> None:
    facts.put("~stage", entry.word, entry.where)
    if entry.word in ("sft", "pt"):
        facts.put("task", "train", entry.where)
    elif entry.word in ("dpo", "ppo", "kto", "rm"):
        facts.put("task", {"rm": "reward"}.get(entry.word, entry.word), entry.where)
    else:
        raise InputError(f"stage is {entry.value!r}; accepted: pt, sft, rm, ppo, dpo, kto", where=entry.where)


def _tuning(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("lora", "full", "freeze", "oft"):
        raise InputError(f"finetuning_type is {entry.value!r}; accepted: lora, full, freeze, oft", where=entry.where)
    if entry.word == "oft":
        raise InputError("finetuning_type oft is not counted; lora, full and freeze are", where=entry.where)
    facts.put("~lora", entry.word == "lora", entry.where)
    if entry.word == "freeze":
        facts.put("~freeze", value=True, where=entry.where)


def _last_layers(facts: Facts, entry: Entry) -> None:
    if entry.number < 0:
        facts.leave(entry, "the first layers would train; the last so many are counted")
    facts.put("~trainable_layers", abs(entry.number), entry.where)


def _checkpointing_off(facts: Facts, entry: Entry) -> None:
    facts.put("recompute", "none" if entry.is_on else "full", entry.where)


def _optimizer(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        if entry.is_on:
            facts.put("optimizer", name, entry.where)

    return write


def _export(_facts: Facts, entry: Entry) -> None:
    raise InputError(f"{entry.key}: a model is written there, and nothing is trained or served", where=entry.where)


def _backend(facts: Facts, entry: Entry) -> None:
    if entry.word not in BACKENDS:
        raise InputError(f"{entry.key} {entry.value} is not counted; {', '.join(BACKENDS)} are", where=entry.where)
    facts.put("~backend", BACKENDS[entry.word], entry.where)


BACKENDS = {"huggingface": "", "vllm": "vllm", "sglang": "sglang"}
KEYS: dict[str, Rule] = {
    **{key: rule for key, rule in megatron.KEYS.items() if key in megatron.SHARED},
    **training_arguments.KEYS,
    **adapters.KEYS,
    "model": "model",
    "model_name_or_path": "model",
    "stage": _stage,
    "finetuning_type": _tuning,
    **adapters.modules("lora_rank", "lora_target", "lora_dropout", "additional_target"),
    "freeze_trainable_layers": _last_layers,
    "freeze_trainable_modules": unless("all", why="whole layers are counted"),
    "freeze_extra_modules": unless(),
    "use_llama_pro": when("", None, then="layers that it adds are spread over the model; the last are counted"),
    **_llamafactory_v1.KEYS,
    "cutoff_len": whole_number("seq_len"),
    "neat_packing": switch("~padding_free"),
    "micro_batch_size": whole_number("micro_batch"),
    "global_batch_size": whole_number("~global_batch"),
    "quantization_bit": whole_number("~bits"),
    "quantization_type": "~quant_type",
    "quantization_method": unless("bnb", "bitsandbytes", why="bitsandbytes is counted"),
    "double_quantization": switch("~double_quant"),
    "flash_attn": attention,
    "enable_liger_kernel": switch(liger.ON),
    "disable_gradient_checkpointing": _checkpointing_off,
    "pure_bf16": switch("~pure_bf16"),
    "fp8": switch("~fp8"),
    "fp8_backend": "~fp8_backend",
    "fp8_enable_fsdp_float8_all_gather": unless("false", why="weights are gathered in bf16, which is more"),
    "upcast_layernorm": when("", None, then="norms are held in fp32: small"),
    "use_unsloth": when("", None, then="unsloth's own kernels"),
    "use_unsloth_gc": when("", None, then="checkpoints wait on the host"),
    "use_muon": _optimizer("muon"),
    "use_galore": _optimizer("galore_adamw"),
    "use_apollo": _optimizer("apollo_adamw"),
    "galore_rank": whole_number("optimizer_rank"),
    "apollo_rank": whole_number("optimizer_rank"),
    "use_badam": when("", None),
    "use_adam_mini": when("", None),
    "freeze_vision_tower": switch("~frozen_vision"),
    "ref_model_quantization_bit": unless(),
    "pref_loss": "~preference",
    "pref_ftx": unless("0", "0.0", why="a loss of the chosen answers beside"),
    "ref_model": "~reference",
    "reward_model": "~reward",
    "reward_model_type": "~reward_type",
    "infer_backend": _backend,
    "export_dir": _export,
    "peft_config.export_dir": _export,
    "vllm_maxlen": whole_number("~longest"),
    "sglang_maxlen": whole_number("~longest"),
    "vllm_gpu_util": "serving.gpu_memory_utilization",
    "sglang_mem_fraction": "serving.mem_fraction_static",
    "sglang_tp_size": unless(-1, why="all cards of the command are counted"),
    "vllm_enforce_eager": vllm.serving("enforce_eager"),
    "vllm_max_lora_rank": vllm.serving("max_lora_rank", whole=True),
    "vllm_config*": unless(why="arguments for the server itself"),
    "max_new_tokens": whole_number("~new_tokens"),
}


def _cast(facts: Facts) -> None:
    """Who stands beside: no reference where the loss has none, and in PPO a value head and reward adapters on the actor's own trunk (train/ppo/workflow.py)."""
    task, loss = facts.get("task", "train"), facts.get("~preference")
    if task == "dpo" and loss in ("orpo", "simpo"):
        facts.override("task", loss, facts.where("~preference"))
    elif task in ("dpo", "kto") and "~reference" in facts.found:
        facts.put("roles.reference.model", facts.get("~reference"), facts.where("~reference"))
    if task != "ppo":
        return
    prompt = facts.found.pop("seq_len")
    facts.put("rollout.prompt_length", prompt.value, prompt.where)
    facts.put("rollout.response_length", facts.get("~new_tokens", ANSWER), facts.where("~new_tokens") if "~new_tokens" in facts.found else VERSION)
    facts.put("roles.critic.shares", "actor", f"{VERSION}: a value head on the actor's trunk")
    kind = str(facts.get("~reward_type", "lora"))
    if kind == "full" and "~reward" in facts.found:
        facts.put("roles.reward.model", facts.get("~reward"), facts.where("~reward"))
    elif kind == "api":
        facts.put("roles.reward", None, facts.where("~reward_type"))
    elif facts.get("~lora", False):
        facts.put("roles.reward.shares", "actor", f"{VERSION}: the reward's adapters on the actor's trunk")


def _serves(facts: Facts) -> None:
    """A chat or an API over a model: a server's share of the card, or one answer of transformers' own ``generate``."""
    facts.found = {name: fact for name, fact in facts.found.items() if name.startswith(("model", "serving.", "hardware.", "~", "attention"))}
    for name in ("~lora", "~upcast", "~load_dtype", "~mixed_precision"):
        facts.found.pop(name, None)
    backend = facts.get("~backend")
    if backend:
        share = {"vllm": "serving.gpu_memory_utilization", "sglang": "serving.mem_fraction_static"}[backend]
        facts.default(share, 0.7, VERSION)
        facts.default("~longest", 4096, VERSION)
        facts.put("seq_len", facts.get("~longest"), facts.where("~longest"))
        facts.put("serving.max_model_len", facts.get("~longest"), facts.where("~longest"))
        facts.default("sharding.tp", facts.cards, f"{VERSION}: all cards")
        vllm.serves(facts, backend, VERSION)
        return
    facts.put("task", "inference", VERSION)
    facts.default("dtype", "bfloat16", VERSION)
    facts.default("seq_len", 2048, VERSION)
    facts.default("new_tokens", facts.get("~new_tokens", ANSWER), VERSION)


def finish(facts: Facts) -> None:
    """What follows from its upcast rule: trained weights in fp32 over a model loaded in the compute dtype, unless ZeRO-3, FSDP or pure_bf16."""
    if "~backend" in facts.found and "~stage" not in facts.found:
        _serves(facts)
        return
    _llamafactory_v1.finish(facts, VERSION)
    mixed = str(facts.get("~mixed_precision", "no"))
    if "~megatron_keys" in facts.found:
        if mixed != "no":
            facts.put("dtype", mixed, facts.where("~mixed_precision"))
        megatron.finish(facts)
    training_arguments.finish(facts)
    if facts.get("~pure_bf16", False):
        facts.put("~load_dtype", "bfloat16", facts.where("~pure_bf16"))
    else:
        facts.default("~load_dtype", "bfloat16" if mixed == "no" else mixed, f"{VERSION}: the compute dtype")
        facts.put("~upcast", value=True, where=f"{VERSION} holds trained weights in fp32")
    if facts.get("~bits") == 4:
        facts.default("kbit_upcast", value=False, framework=VERSION)
        facts.default("~quant_storage", {"fp16": "float16", "fp32": "float32"}.get(mixed, "bfloat16"), f"{VERSION}: the compute dtype")
    if facts.get("~freeze", False):
        facts.put("trainable_layers", facts.get("~trainable_layers", FREEZE_LAYERS), facts.where("~freeze", "~trainable_layers"))
    facts.default("~quant_type", "nf4", VERSION)
    facts.default("~double_quant", value=True, framework=VERSION)
    _cast(facts)
    training_arguments.packed(facts)
    training_arguments.evaluated(facts)


FORMAT = Format(
    name="llamafactory",
    title="LLaMA-Factory YAML",
    version=VERSION,
    rank=TRAINER,
    takes_auto=training_arguments.TAKES_AUTO,
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *training_arguments.IGNORED,
        *adapters.IGNORED,
        *_llamafactory_v1.IGNORED,
        *names(
            "template max_samples plot_loss val_size pref_beta sample_backend init_config* lora_alpha packing "
            "train_on_prompt mask_history shift_attn neft_alpha freeze_multi_modal_projector freeze_language_model top_p temperature"
            "adapter_name_or_path ppo_* create_new_adapter media_dir image_max_pixels video_max_pixels enable_thinking "
            "rope_scaling eval_dataset model_class model_name tokenized_path print_param_status resize_vocab kernel_config quantization_device_map "
            "bias_activation_fusion apply_rope_fusion overlap_* moe_grouped_gemm galore_* apollo_* badam_* ignore_pad_token_for_loss"
        ),
    ),
    defaults={
        "micro_batch": 8,
        "grad_accum": 1,
        "optimizer": "adamw_torch_fused",
        "seq_len": 2048,
        "recompute": "full",
        "~lora": True,
        "lora.r": 8,
        "lora.target_modules": "all-linear",
        "~mixed_precision": "no",
    },
    finish=finish,
    order=30,
    notes="Checkpoints unless `disable_gradient_checkpointing`; trained weights are held in fp32 unless `pure_bf16`; 4-bit weights are quantised twice.",
)
