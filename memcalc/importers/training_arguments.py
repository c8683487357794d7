"""Keys of transformers' TrainingArguments, which TRL, LLaMA-Factory, ms-swift and scripts share (checked against transformers 5.24)."""

from __future__ import annotations

import re

from memcalc.errors import InputError
from memcalc.importers import fsdp, liger
from memcalc.importers.facts import Entry, Facts, Link, Rule, truth, whole
from memcalc.importers.links import name_deepspeed
from memcalc.importers.rules import attention, names, switch, unless, when, whole_number
from memcalc.units import dtype_name

VERSION = "transformers 5.24"
TAKES_AUTO = ("torch_dtype", "dtype")


def deepspeed(facts: Facts, entry: Entry) -> None:
    """A path, a map, JSON text; true where the launcher names the file."""
    if entry.word in ("false", "true", ""):
        if entry.word == "true":
            facts.put("~engine", "deepspeed", entry.where)
        return
    name_deepspeed(facts, entry.value, where=entry.where, key=entry.key)


def mixed(name: str) -> Rule:
    """``bf16: true``."""

    def write(facts: Facts, entry: Entry) -> None:
        if entry.is_on:
            before = facts.found.get("~mixed_precision")
            if before is not None and before.rank == facts.rank and before.value in ("bf16", "fp16") and before.value != name:
                raise InputError(f"{before.value} and {name} are both on; transformers takes one of them", where=entry.where)
            facts.put("~mixed_precision", name, entry.where)
        elif facts.get("~mixed_precision") in (None, name):
            facts.put("~mixed_precision", "no", entry.where)

    return write


def full_fsdp(facts: Facts, entry: Entry) -> None:
    """``fsdp: full_shard auto_wrap``, a list, or true."""
    if entry.word in ("false", ""):
        return
    if entry.word == "true":
        facts.put("~fsdp", value=True, where=entry.where)
        return
    if entry.word.endswith(".json"):
        facts.links.append(Link(str(entry.value).strip(), entry.where, facts.folder, "trainer"))
        return
    fsdp.words(facts, entry)


def optimizer(facts: Facts, entry: Entry) -> None:
    """By its transformers name, however spelt."""
    facts.put("optimizer", str(entry.value).strip().rpartition(".")[2].lower(), entry.where)


def load_dtype(facts: Facts, entry: Entry) -> None:
    """In which dtype the model is loaded; auto is the checkpoint's, and for nearly all of them that is bf16."""
    if entry.word == "auto":
        facts.put("~load_dtype", "bfloat16", entry.where)
        facts.assumed.append(f"{entry.where}: {entry.key} auto is the checkpoint's own, taken to be bfloat16")
    elif entry.word not in ("none", "null", ""):
        facts.put("~load_dtype", dtype_name(entry.word.removeprefix("torch."), where=entry.where), entry.where)


def batches(facts: Facts, entry: Entry) -> None:
    """A global batch."""
    facts.put("~global_batch", entry.number, entry.where)


def optim_args(facts: Facts, entry: Entry) -> None:
    """``optim_args``: ``rank=64, …``; only a rank and a momentum count."""
    for part in str(entry.value).split(","):
        name, _, value = part.strip().partition("=")
        if name.strip() in ("rank", "momentum"):
            facts.put({"rank": "optimizer_rank"}.get(name.strip(), "momentum"), value.strip(), entry.where)


def _layer_class(facts: Facts, entry: Entry) -> None:
    """A flag of the days when FSDP1 was the only one."""
    facts.put("sharding.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", entry.where)
    if "~fsdp_version" not in facts.found:
        facts.put("~fsdp_version", 1, entry.where)


def _reentrant(facts: Facts, entry: Entry) -> None:
    """``gradient_checkpointing_kwargs`` as text, as a command has them."""
    found = re.search(r"""["']?use_reentrant["']?\s*[:=]\s*(\w+)""", str(entry.value))
    if found is not None:
        facts.put("~reentrant", truth(found.group(1), name="use_reentrant", where=entry.where), entry.where)


def evaluates(facts: Facts, entry: Entry) -> None:
    """``eval_strategy``: steps, epoch, or no."""
    facts.put("~evaluates", entry.word not in ("no", "false"), entry.where)


def targets(facts: Facts, entry: Entry) -> None:
    """Modules that galore and apollo project: names, or a regular expression."""
    facts.put("optim_target_modules", tuple(entry.value) if isinstance(entry.value, list) else entry.value, entry.where)


KEYS: dict[str, Rule] = {
    "model_name_or_path": "model",
    "per_device_train_batch_size": whole_number("micro_batch"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    "gradient_checkpointing": switch("recompute", "full", "none"),
    "activation_checkpointing": switch("recompute", "full", "none"),
    "bf16": mixed("bf16"),
    "fp16": mixed("fp16"),
    "pure_bf16": switch("~load_dtype", "bfloat16", None),
    "torch_dtype": load_dtype,
    "dtype": load_dtype,
    "optim": optimizer,
    "optim_args": optim_args,
    "optim_target_modules": targets,
    "attn_implementation": attention,
    "deepspeed": deepspeed,
    "fsdp": full_fsdp,
    "fsdp_config": full_fsdp,
    "fsdp_transformer_layer_cls_to_wrap": _layer_class,
    "fsdp_min_num_params": unless(0),
    **fsdp.keys_below("fsdp_config."),
    **liger.KEYS,
    "torch_compile": switch("torch_compile", off=None),
    "gradient_checkpointing_kwargs.use_reentrant": switch("~reentrant"),
    "gradient_checkpointing_kwargs": _reentrant,
    "use_reentrant": switch("~reentrant"),
    "activation_offloading": switch("offload.activations", "cpu", None),
    "auto_find_batch_size": when("", None, then="the batch that is given is counted"),
    "torch_empty_cache_steps": unless(0),
    "eval_strategy": evaluates,
    "evaluation_strategy": evaluates,
    "per_device_eval_batch_size": whole_number("~eval_batch"),
    "eval_accumulation_steps": unless(why="of logits, where a script keeps them for metrics: give evaluation.samples and evaluation.accumulation_steps"),
    "parallelism_config.tp_size": whole_number("sharding.tp"),
    "parallelism_config.cp_size": whole_number("sharding.cp"),
    "parallelism_config.sp_size": whole_number("sharding.cp"),
    "parallelism_config.dp_replicate_size": whole_number("~dp_replicate"),
    "parallelism_config.dp_shard_size": whole_number("~dp_shard"),
    "fsdp_config.activation_cpu_offload": switch("offload.activations", "cpu", None),
}

IGNORED: tuple[str, ...] = (
    *fsdp.ignored_below("fsdp_config."),
    *names(
        "output_dir overwrite_output_dir do_train do_eval do_predict eval_steps eval_delay eval_on_start eval_do_concat_batches "
        "eval_use_gather_object batch_eval_metrics per_gpu_* learning_rate weight_decay adam_* max_grad_norm num_train_epochs max_steps lr_scheduler* "
        "warmup_* log_* logging_* save_* save seed data_seed tf32 report_to run_name ddp_* dataloader_* dataset* remove_unused_columns hub_* push_to_hub* "
        "load_best_model_at_end metric_for_best_model greater_is_better label_* disable_tqdm resume_from_checkpoint ignore_data_skip "
        "gradient_checkpointing_kwargs* trust_remote_code model_revision revision tokenizer_* chat_template* local_rank use_cpu no_cuda "
        "length_column_name group_by_length include_* bf16_full_eval fp16_full_eval average_tokens_across_devices cache_dir preprocessing_num_workers "
        "overwrite_cache max_train_samples max_eval_samples train_file validation_file streaming beta env env.* ENV ENV.* half_precision_backend "
        "data_path accelerator_config* low_cpu_mem_usage use_fast_tokenizer prediction_loss_only jit_mode_eval debug "
        "skip_memory_metrics project trackio* past_index torch_compile_* lazy_preprocess neftune_noise_alpha "
        "parallelism_config*backend parallelism_config*strategy full_determinism restore_callback_states* activation_checkpointing_kwargs*"
    ),
)


def finish(facts: Facts) -> None:
    """Which FSDP, where there is one."""
    fsdp.finish(facts, default_version=2, framework=VERSION)


def packed(facts: Facts) -> None:
    """Samples side by side in a sequence: flash attention needs nothing to keep them apart, other kernels a mask."""
    by_position = facts.get("~padding_free", False) or (facts.get("~packing", False) and str(facts.get("~packing_strategy", "bfd")).startswith("bfd"))
    split = facts.get("sharding.cp", 1) > 1
    if not by_position or split or facts.get("attention") == "flash_attention_2" or facts.get("task", "train") != "train":
        return
    facts.put("packing", value=True, where=facts.where("~packing", "~padding_free"))


def evaluated(facts: Facts, *, batch: int = 8) -> None:
    """An evaluation that may be the peak: of more sequences at once than are trained on.

    Args:
        facts: with the trainer's keys.
        batch: sequences of an evaluation by default.
    """
    if not facts.get("~evaluates", False):
        return
    size, mine = facts.get("~eval_batch", batch), whole(facts.get("micro_batch", 1), name="micro_batch")
    where = facts.where("~evaluates", "~eval_batch") + ("" if "~eval_batch" in facts.found else f"; by default {batch} sequences")
    if size <= mine:
        return
    if facts.get("task", "train") != "train" or facts.get("code", "transformers") != "transformers":
        facts.unused.append(f"{where}: an evaluation of {size} sequences beside task {facts.get('task', 'train')} is not counted")
    else:
        facts.put("evaluation.micro_batch", size, where)


__all__ = ["IGNORED", "KEYS", "TAKES_AUTO", "VERSION", "evaluated", "evaluates", "finish", "load_dtype", "mixed", "optimizer", "packed"]
