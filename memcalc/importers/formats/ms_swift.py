"""ms-swift: flags of ``swift sft``, ``swift pt``, ``swift rlhf`` and ``megatron sft``, which are also the keys of its YAML and JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, launchers, training_arguments
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule, whole
from memcalc.importers.format import Format
from memcalc.importers.formats import _swift_rlhf, megatron
from memcalc.importers.formats._megatron import IGNORED as MEGATRON
from memcalc.importers.rules import attention, names, switch, unless, when, whole_number
from memcalc.importers.source import Source
from memcalc.units import ceil_div

VERSION = "ms-swift 4.6"
MEGATRON_DEFAULTS: Mapping[str, Any] = {
    "recompute": "selective",
    "sharding.use_distributed_optimizer": True,
    "sharding.etp": 1,
    "micro_batch": 1,
    "~global_batch": 16,
    "dtype": "bfloat16",
    "~lora": False,
    "~fused_loss": True,
    "sharding.moe_router_dtype": "fp32",
    "sharding.apply_rope_fusion": False,
    "sharding.make_vocab_size_divisible_by": 1,
}
DEFAULTS: Mapping[str, Any] = {
    "micro_batch": 1,
    "optimizer": "adamw_torch_fused",
    "recompute": "full",
    "~load_dtype": "bfloat16",
    "~double_quant": True,
    "~lora": True,
}
SEQUENCES = 16
"""Of a step, up to which gradients are accumulated where nobody says how often (swift/trainers/arguments.py)."""
ADAPTERS = ("adalora", "adapter", "boft", "bone", "fourierft", "longlora", "reft", "vera")
"""Tuners that train little beside a frozen model."""
PAIRS = ("dpo", "orpo", "simpo", "kto", "reward")
"""Tasks whose samples are two sequences."""
OPTIMIZERS = {"lorap": None, "multimodal": None, "default": None, "galore": "galore_adamw", "muonclip": "muon", "dist_muon": "muon"}
"""Optimizers under names of its own; None: the one that ``optim`` names, with groups of parameters (swift/optimizers/mapping.py)."""


ROLES = ("train", "rollout", "teacher")
"""Sections of a file for Ray, whose keys are those of the top (swift/ray_utils)."""


def prepare(source: Source) -> Source:
    """A file for Ray as one without sections: the cards that train, and whether a server stands on them."""
    sections = {name: source.data[name] for name in ROLES if isinstance(source.data.get(name), Mapping)}
    if "train" not in sections:
        return source
    groups = source.data.get("colocate_groups")
    together = isinstance(groups, list) and any(isinstance(group, list) and {"train", "rollout"} <= {*map(str, group)} for group in groups)
    data = {key: value for key, value in source.data.items() if key not in (*sections, "colocate_groups")}
    lines = dict(source.lines)
    for name, section in sections.items():
        for key, value in section.items():
            flat = f"{name}_gpus" if key == "gpus" else key
            data[flat] = value
            lines[(flat,)] = source.lines.get((name, key), source.lines.get((name,), 1))
    return source._replace(data={**data, **({"vllm_mode": "colocate" if together else "server"} if "rollout" in sections else {})}, lines=lines)


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``model`` beside its own keys."""
    return isinstance(keys.get("model"), str) and any(
        key in keys for key in ("tuner_type", "train_type", "split_dataset_ratio", "rlhf_type", "load_from_cache_file")
    )


def _allocator(facts: Facts, entry: Entry) -> None:
    if "expandable_segments:true" in entry.word.replace(" ", ""):
        facts.put("expandable_segments", value=True, where=entry.where)


def _tuner(facts: Facts, entry: Entry) -> None:
    if entry.word in ("lora", "full"):
        facts.put("~lora", entry.word == "lora", entry.where)
    elif entry.word in ADAPTERS:
        facts.put("~lora", value=True, where=entry.where)
        facts.leave(entry, "low-rank adapters are counted in its place")
    else:
        raise InputError(f"{entry.key} {entry.word} is not counted; lora, full, {', '.join(ADAPTERS)} are", where=entry.where)


def _task(facts: Facts, entry: Entry) -> None:
    if entry.word != "causal_lm":
        facts.leave(entry, "another head than the language model's; that is counted")


def _validates(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("0", "0.0", "0."):
        facts.put("~validates", value=True, where=entry.where)


def _optimizer(facts: Facts, entry: Entry) -> None:
    name = OPTIMIZERS.get(entry.word, entry.word)
    if name is not None:
        training_arguments.optimizer(facts, entry._replace(value=name))


def _sequence_ranks(facts: Facts, entry: Entry) -> None:
    """Sequences split over ranks (Ulysses, and a ring where heads do not suffice), which share the states with all others."""
    if entry.number > 1:
        facts.put("sharding.cp", entry.number, entry.where)


def _megatron_flag(facts: Facts, entry: Entry) -> None:
    facts.put("~megatron_keys", value=True, where=entry.where)
    rule = megatron.KEYS[entry.key.replace("-", "_")]
    if isinstance(rule, str):
        facts.put(rule, entry.value, entry.where)
    else:
        rule(facts, entry)


KEYS: dict[str, Rule] = {
    **dict.fromkeys(sorted(megatron.SHARED), _megatron_flag),
    **training_arguments.KEYS,
    **adapters.KEYS,
    **_swift_rlhf.KEYS,
    "model": "model",
    "train_gpus": whole_number("~gpus_per_node"),
    "ENV.NPROC_PER_NODE": whole_number("~gpus_per_node"),
    "ENV.NNODES": whole_number("~nodes"),
    "ENV.PYTORCH_CUDA_ALLOC_CONF": _allocator,
    "ENV.PYTORCH_ALLOC_CONF": _allocator,
    "tuner_type": _tuner,
    "train_type": _tuner,
    **adapters.modules("lora_rank", "target_modules", "lora_dropout", "modules_to_save"),
    "target_regex": adapters.targets,
    "target_parameters": adapters.parameters,
    "lora_dtype": "lora.dtype",
    "max_length": whole_number("seq_len"),
    "packing": switch("~packing"),
    "packing_length": whole_number("~packing_length"),
    "micro_batch_size": whole_number("micro_batch"),
    "global_batch_size": whole_number("~global_batch"),
    "val_dataset": _validates,
    "cached_val_dataset": _validates,
    "split_dataset_ratio": _validates,
    "task_type": _task,
    "attn_impl": attention,
    "quant_bits": whole_number("~bits"),
    "quant_method": unless("bnb", why="bitsandbytes is counted"),
    "sequence_parallel_size": _sequence_ranks,
    "deepspeed_autotp_size": whole_number("sharding.tp"),
    "zero_hpz_partition_size": lambda facts, entry: facts.put("~deepspeed.zero_optimization.zero_hpz_partition_size", entry.number, entry.where),
    "vit_gradient_checkpointing": unless("true", "false"),
    "freeze_llm": when("", None, then="the language model is counted as trained"),
    "freeze_parameters*": unless("0", "0.0", why="all parameters are counted as trained"),
    "trainable_parameters*": unless(why="all parameters are counted as trained"),
    "use_galore": switch("optimizer", "galore_adamw", None),
    "galore_rank": whole_number("optimizer_rank"),
    "galore_target_modules": training_arguments.targets,
    "galore_with_embedding": unless("false"),
    "galore_quantization": unless("false"),
    "lisa_activated_layers": unless(0, why="all layers are counted as trained"),
    "optimizer": _optimizer,
    "use_logits_to_keep": unless("false"),
    "tuner_backend": unless("peft", why="PEFT's adapters are counted"),
}
KEYS["fsdp"] = lambda facts, entry: training_arguments.full_fsdp(
    facts, entry._replace(value="full_shard auto_wrap fsdp2" if entry.word == "fsdp2" else entry.value)
)


def finish(facts: Facts) -> None:
    """Defaults of ``megatron sft`` where its keys are, of ``swift sft`` elsewhere."""
    facts.default("lora.dropout", 0.05, VERSION)
    if "~megatron_keys" in facts.found:
        for name, value in MEGATRON_DEFAULTS.items():
            facts.default(name, value, f"{VERSION}, megatron")
        facts.found.pop("~load_dtype", None)
        megatron.finish(facts)
        _packed(facts)
        _swift_rlhf.finish(facts, VERSION)
        return
    for name, value in DEFAULTS.items():
        facts.default(name, value, VERSION)
    training_arguments.finish(facts)
    facts.default("~mixed_precision", "bf16" if str(facts.get("~load_dtype")) in ("bfloat16", "bf16") else "fp16", VERSION)
    if facts.get("~bits") == 4:
        facts.default("kbit_upcast", value=False, framework=VERSION)
    _packed(facts)
    _accumulated(facts)
    _swift_rlhf.finish(facts, VERSION)
    launchers.spread(facts)
    if facts.get("~validates", False):
        facts.default("~evaluates", value=True, framework=VERSION)
        training_arguments.evaluated(facts, batch=1)


def _packed(facts: Facts) -> None:
    """A packed row has so many tokens, of pairs both answers together (template/base.py, ``encode``; dataset/packing.py, ``create_packed_idx``)."""
    if not facts.get("~packing", False):
        return
    length = next((name for name in ("~packing_length", "seq_len") if name in facts.found), None)
    if length is None:
        return
    if facts.get("task") in PAIRS:
        facts.override("seq_len", whole(facts.get(length), name="max_length") // 2, f"{facts.where(length)}: what is packed holds both answers")
    elif length != "seq_len":
        facts.override("seq_len", facts.get(length), facts.where(length))


def _accumulated(facts: Facts) -> None:
    if facts.get("task") == "grpo":
        facts.default("grad_accum", 1, VERSION)
    else:
        micro = whole(facts.get("micro_batch"), name="micro_batch")
        facts.default("grad_accum", ceil_div(SEQUENCES, max(micro, 1) * facts.cards), f"{VERSION}: up to {SEQUENCES} sequences a step")


FORMAT = Format(
    name="ms_swift",
    title="ms-swift YAML, JSON and flags",
    version=VERSION,
    rank=TRAINER,
    takes_auto=training_arguments.TAKES_AUTO,
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *training_arguments.IGNORED,
        *adapters.IGNORED,
        *_swift_rlhf.IGNORED,
        *(name for name in MEGATRON if name not in ("bias", "name")),
        *names(
            "system model_author model_name load_from_cache_file add_version merge_lora padding_free packing_num_proc "
            "packing_strategy loss_scale add_non_thinking_prefix enable_thinking preserve_thinking freeze_vit freeze_aligner truncation_strategy "
            "num_labels problem_type "
            "use_chat_template model_kwargs* template* agent_template galore_* external_plugins custom_register_path callbacks experts_impl "
            "linear_decoupled_in_proj router_aux_loss_coef max_epochs shuffle_buffer_size predict_with_generate create_checkpoint_symlink max_pixels "
            "interleave_prob cached_dataset columns check_model use_hf stopping_strategy load_args load_data_args lazy_tokenize strict "
            "dataset_shuffle train_dataloader_shuffle model_type response_prefix _* early_stop_interval new_special_tokens init_weights init_strategy "
            "lora_ga_* lorap_* adalora_* boft_* vera_* fourier_* reft_* adapter_* lisa_step_interval acc_strategy aligner_lr vit_lr enable_dft_loss "
            "enable_channel_loss eval_* extra_eval_args use_flash_ckpt swanlab_* norm_bbox padding_side is_binary_loss_scale val_dataset_shuffle "
            "custom_dataset_info max_model_len rope_scaling device_map max_memory local_repo_path hqq_axis resume_only_model safe_serialization "
            "max_shard_size offload_bridge ignore_args_error use_swift_lora stream mrl_dims disable_* download_mode use_ray device_groups* "
            "rollout_gpus teacher_gpus"
        ),
    ),
    defaults={"lora.r": 8, "lora.target_modules": "all-linear"},
    prepare=prepare,
    finish=finish,
    order=40,
    notes="Cards come from the environment (`NPROC_PER_NODE`, `NNODES`, `CUDA_VISIBLE_DEVICES`). `deepspeed: zero2` names a configuration that ms-swift "
    "ships. Packed samples need flash attention there, which keeps no mask of them. Prompts and answers are counted as long as `max_length` and "
    "`max_completion_length` let them be.",
)
