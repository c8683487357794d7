"""DeepSpeed-Chat's first two steps: supervised fine-tuning, and a reward model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers import adapters
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import deepspeed_chat
from memcalc.importers.rules import names, switch, whole_number, word


def recognise(keys: Mapping[str, Any]) -> bool:
    """By the name that only it has for a rank, beside a stage."""
    return "lora_dim" in keys and "zero_stage" in keys


def _reward(facts: Facts, entry: Entry) -> None:
    """Where padding begins is asked of the second step alone."""
    facts.put("task", "reward", entry.where)


KEYS: dict[str, Rule] = {
    "model_name_or_path": "model",
    "per_device_train_batch_size": whole_number("micro_batch"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    "max_seq_len": whole_number("seq_len"),
    "gradient_checkpointing": switch("recompute", "full", "none"),
    "zero_stage": whole_number("~stage"),
    "offload": switch("~offload"),
    "lora_dim": whole_number("~lora_rank"),
    "only_optimize_lora": switch("~only"),
    "dtype": word("dtype", {"fp16": "float16", "bf16": "bfloat16"}),
    "num_padding_at_beginning": _reward,
}


def finish(facts: Facts) -> None:
    """The configuration that it makes, and adapters on every linear layer of the model's layers."""
    config = deepspeed_chat.train_config(facts.get("~stage", 0), offload=facts.get("~offload", False))
    if facts.get("dtype") == "bfloat16":
        config["bf16"] = config.pop("fp16")
    facts.put("sharding.deepspeed", config, facts.where("~stage", "~offload"))
    facts.put("sharding.deepspeed_auto", "deepspeed", deepspeed_chat.VERSION)
    facts.put("sharding.engine", "deepspeed", deepspeed_chat.VERSION)
    adapters.ranked(facts, deepspeed_chat.VERSION)
    if facts.get("~lora_rank", 0) > 0:
        where = facts.where("~lora_rank")
        facts.default("lora.dtype", facts.get("dtype"), deepspeed_chat.VERSION)
        if not facts.get("~only", False):
            facts.unused.append(f"{where}: without --only_optimize_lora tables and norms are trained beside the adapters; they are counted as frozen")


FORMAT = Format(
    name="deepspeed_chat_sft",
    title="DeepSpeed-Chat, steps 1 and 2",
    version=deepspeed_chat.VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "data_* *learning_rate weight_decay num_train_epochs lr_scheduler_type num_warmup_steps output_dir seed local_rank deepspeed lora_module_name "
        "lora_learning_rate per_device_eval_batch_size enable_tensorboard tensorboard_path print_loss eval_* dropout disable_dropout sft_only_data_path "
        "add_eot_token compute_fp32_loss"
    ),
    defaults={
        "micro_batch": 16, "grad_accum": 1, "seq_len": 512, "dtype": "float16", "recompute": "none", "optimizer": "adamw_torch_fused", "~lora_rank": 0,
    },
    finish=finish,
    order=12,
)  # fmt: skip
