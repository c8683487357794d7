"""ms-swift: flags of ``swift sft``, ``swift rlhf`` and ``megatron sft``, which are also the keys of its YAML and JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, training_arguments
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import megatron
from memcalc.importers.formats._megatron import IGNORED as MEGATRON
from memcalc.importers.rules import attention, names, unless, when, whole_number

VERSION = "ms-swift 4.0"
MEGATRON_DEFAULTS: Mapping[str, Any] = {
    "recompute": "selective",
    "sharding.use_distributed_optimizer": True,
    "sharding.etp": 1,
    "micro_batch": 1,
    "~global_batch": 16,
    "dtype": "bfloat16",
    "~lora": False,
}


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``model`` beside its own keys."""
    return isinstance(keys.get("model"), str) and any(
        key in keys for key in ("tuner_type", "train_type", "split_dataset_ratio", "rlhf_type", "load_from_cache_file")
    )


ADAPTERS = ("adalora", "adapter", "boft", "bone", "fourierft", "longlora", "reft", "vera")
"""Tuners that train little beside a frozen model."""
TASKS = {"rm": "reward", "gkd": "distill"}
"""Tasks under names of its own."""


def _tuner(facts: Facts, entry: Entry) -> None:
    if entry.word in ("lora", "full"):
        facts.put("~lora", entry.word == "lora", entry.where)
    elif entry.word in ADAPTERS:
        facts.put("~lora", value=True, where=entry.where)
        facts.leave(entry, "low-rank adapters are counted in its place")
    else:
        raise InputError(f"{entry.key} {entry.word} is not counted; lora, full, {', '.join(ADAPTERS)} are", where=entry.where)


def _rlhf(facts: Facts, entry: Entry) -> None:
    facts.put("task", TASKS.get(entry.word, entry.word), entry.where)


def _task(facts: Facts, entry: Entry) -> None:
    if entry.word != "causal_lm":
        facts.leave(entry, "another head than the language model's; that is counted")


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
    "model": "model",
    "tuner_type": _tuner,
    "train_type": _tuner,
    **adapters.modules("lora_rank", "target_modules", "lora_dropout", "modules_to_save"),
    "max_length": whole_number("seq_len"),
    "micro_batch_size": whole_number("micro_batch"),
    "global_batch_size": whole_number("~global_batch"),
    "rlhf_type": _rlhf,
    "task_type": _task,
    "attn_impl": attention,
    "quant_bits": whole_number("~bits"),
    "quant_method": unless("bnb", why="bitsandbytes is counted"),
    "sequence_parallel_size": unless(1, why="sequences split over ranks (Ulysses)"),
    "deepspeed_autotp_size": whole_number("sharding.tp"),
    "zero_hpz_partition_size": lambda facts, entry: facts.put("~deepspeed.zero_optimization.zero_hpz_partition_size", entry.number, entry.where),
    "vit_gradient_checkpointing": unless("true", "false"),
    "freeze_llm": when("", None, then="the language model is counted as trained"),
    "use_galore": when("", None),
    "lisa_activated_layers": unless(0),
    "optimizer": training_arguments.optimizer,
    "teacher_model": lambda facts, entry: facts.put("roles", {"teacher": {"model": str(entry.value)}}, entry.where),
    "use_vllm": when("", None, then="the server that generates shares the cards when it is colocated"),
    "vllm_*": unless(),
    "use_logits_to_keep": unless("false"),
}
KEYS["fsdp"] = lambda facts, entry: training_arguments.full_fsdp(
    facts, entry._replace(value="full_shard auto_wrap fsdp2" if entry.word == "fsdp2" else entry.value)
)


def finish(facts: Facts) -> None:
    """Defaults of ``megatron sft`` where its keys are, of ``swift sft`` elsewhere."""
    if "~megatron_keys" in facts.found:
        for name, value in MEGATRON_DEFAULTS.items():
            facts.default(name, value, f"{VERSION}, megatron")
        facts.found.pop("~load_dtype", None)
        megatron.finish(facts)
        return
    facts.default("~lora", value=True, framework=VERSION)
    training_arguments.finish(facts)
    if facts.get("~bits") == 4:
        facts.default("kbit_upcast", value=False, framework=VERSION)
    for name, value in {
        "micro_batch": 1,
        "grad_accum": 1,
        "optimizer": "adamw_torch_fused",
        "recompute": "full",
        "~load_dtype": "bfloat16",
        "~mixed_precision": "bf16",
    }.items():
        facts.default(name, value, VERSION)
    facts.default("~double_quant", value=True, framework=VERSION)


FORMAT = Format(
    name="ms_swift",
    title="ms-swift YAML, JSON and flags",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *training_arguments.IGNORED,
        *adapters.IGNORED,
        *(name for name in MEGATRON if name not in ("bias", "name")),
        *names(
            "system model_author model_name split_dataset_ratio load_from_cache_file add_version merge_lora packing padding_free loss_scale "
            "add_non_thinking_prefix freeze_vit freeze_aligner packing_length truncation_strategy temperature max_completion_length reward_* "
            "rpo_alpha loss_type desirable_weight undesirable_weight center_rewards_coefficient num_labels problem_type use_chat_template "
            "model_kwargs* template* galore_* lmbda external_plugins experts_impl linear_decoupled_in_proj router_aux_loss_coef max_epochs "
            "shuffle_buffer_size predict_with_generate create_checkpoint_symlink sft_alpha max_pixels interleave_prob teacher_deepspeed sleep_level "
            "seq_kd val_dataset columns check_model use_hf stopping_strategy cached_dataset load_args lazy_tokenize strict dataset_shuffle model_type "
            "response_prefix _*"
        ),
    ),
    defaults={"lora.r": 8, "lora.target_modules": "all-linear"},
    finish=finish,
    order=40,
    notes="Cards come from the environment (`NPROC_PER_NODE`, `NNODES`, `CUDA_VISIBLE_DEVICES`). `deepspeed: zero2` names a configuration that ms-swift ships.",
)  # fmt: skip
