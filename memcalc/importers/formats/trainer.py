"""TrainingArguments as YAML or JSON: transformers' scripts, TRL's SFTConfig, DPOConfig and GRPOConfig, the alignment handbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, reinforcement, training_arguments
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.reinforcement import TRL
from memcalc.importers.rules import each, names, switch, unless, whole_number
from memcalc.specs.run import Run

TRL_KEYS = (
    "max_length",
    "max_seq_length",
    "use_peft",
    "lora_r",
    "packing",
    "dataset_name",
    "dataset_mixture",
    "max_prompt_length",
    "beta",
    "num_generations",
    "load_in_4bit",
)
MARKS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "learning_rate",
    "optim",
    "num_train_epochs",
    "bf16",
    "output_dir",
)


def recognise(keys: Mapping[str, Any]) -> bool:
    """By the name of a model, or by three keys of a trainer; asked last."""
    named = any(key in keys for key in ("model_name_or_path", "model_id", "per_device_train_batch_size"))
    return (
        "model_name_or_path" in keys
        or (named and any(key in keys for key in MARKS))
        or sum(key in keys for key in MARKS) > 2
        or ("fsdp" in keys and "fsdp_config" in keys)
    )


def _beta(facts: Facts, entry: Entry) -> None:
    facts.put("~beta", entry.value, entry.where)


def _generations(facts: Facts, entry: Entry) -> None:
    facts.put("~grpo", entry.value, entry.where)
    facts.put("rollout.num_generations", entry.number, entry.where)


def _loss(facts: Facts, entry: Entry) -> None:
    if entry.word in ("nll", "chunked_nll", "dft"):
        facts.put("loss", "chunked" if entry.word == "chunked_nll" else "cross_entropy", entry.where)
    elif entry.word not in ("sigmoid", "ipo", "hinge", "grpo", "dapo", "bnpo", "dr_grpo"):
        facts.leave(entry)


def _old(facts: Facts, entry: Entry) -> None:
    facts.put("~old_names", value=True, where=entry.where)


KEYS: dict[str, Rule] = {
    **training_arguments.KEYS,
    **adapters.KEYS,
    **reinforcement.KEYS,
    "model_id": "model",
    "model": "model",
    "model_path": "model",
    "max_length": whole_number("seq_len"),
    "max_seq_length": each(whole_number("seq_len"), _old),
    "torch_dtype": each(training_arguments.load_dtype, _old),
    "model_max_length": whole_number("seq_len"),
    "block_size": whole_number("seq_len"),
    "num_generations": _generations,
    "loss_type": _loss,
    "beta": _beta,
    "vllm_*": unless(),
    "ref_model*": unless(),
    "packing": switch("~packing"),
    "padding_free": switch("~packing"),
}


def finish(facts: Facts) -> None:
    """TRL's defaults, where the keys are TRL's, and those of transformers otherwise."""
    training_arguments.finish(facts)
    used = {
        name
        for name in ("seq_len", "~lora", "lora.r", "~beta", "~grpo", "~reward", "~packing", "~bits")
        if name in facts.found and facts.found[name].rank >= facts.rank
    }
    if "~beta" in facts.found and facts.found["~beta"].rank >= facts.rank and "~grpo" not in facts.found:
        facts.put("task", "dpo", facts.where("~beta"))
    if "~grpo" in facts.found:
        facts.put("task", "grpo", facts.where("~grpo"))
    elif "~reward" in facts.found and "task" not in facts.found:
        facts.put("task", "ppo", facts.where("~reward"))
    if not used and facts.get("task", "train") in ("train", "inference"):
        facts.default("~load_dtype", "float32", LOADED)
        return
    facts.default("recompute", "full", TRL)
    facts.default("~mixed_precision", "bf16", TRL)
    facts.default("~load_dtype", "float32", TRL)
    facts.default("seq_len", 1024, TRL)
    reinforcement.finish(facts)
    if "~old_names" not in facts.found and "task" not in facts.found:
        facts.default("loss", "chunked", TRL)
    if facts.get("~lora", False):
        facts.default("lora.r", 16, TRL)
        facts.default("lora.target_modules", "all-linear", TRL)


LOADED = "from_pretrained in transformers 4, where 5 takes the checkpoint's own (say so with torch_dtype)"
"""A script's own call is not in its arguments."""

FORMAT = Format(
    name="trainer",
    title="TrainingArguments (transformers, TRL)",
    version=training_arguments.VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *training_arguments.IGNORED,
        *adapters.IGNORED,
        *names(
            "num_generations_* temperature top_p top_k reward_* max_prompt_tokens loss_weights label_smoothing* pad_token eos_token "
            "assistant_only_loss completion_only_loss packing_strategy eval_packing shuffle_dataset model_init_kwargs sync_ref_model attn_kwargs "
            "script_args config_name model_adapter_name num_beams num_proc f_divergence* generate_during_eval truncation_mode"
        ),
    ),
    defaults={"micro_batch": 8, "grad_accum": 1, "optimizer": "adamw_torch_fused"},
    finish=finish,
    order=80,
    notes="Weights are taken to be loaded in fp32, as transformers 4 does where a script says nothing. TRL's defaults (checkpointing, bf16 mixed "
    "precision over fp32 weights, 1,024 tokens, a chunked loss) hold where the file has keys of TRL's own.",
)


def export(run: Run) -> str:
    """TrainingArguments that make this run, with TRL's keys for what transformers has none.

    Raises:
        InputError: the Trainer cannot do it.
    """
    import yaml

    s = run.sharding
    if run.code != "transformers" or run.task == "inference" or s.pp > 1 or s.engine == "megatron":
        raise InputError("the Trainer cannot do this run", where="code" if run.code != "transformers" else "sharding")
    low = run.autocast or (
        {"bfloat16": "bfloat16", "float16": "float16"}.get(run.dtype) if run.sharding.engine == "deepspeed" or s.deepspeed or s.zero else None
    )
    data: dict[str, Any] = {
        "model_name_or_path": run.model,
        "dtype": run.dtype,
        "attn_implementation": run.attention,
        "per_device_train_batch_size": run.micro_batch,
        "gradient_accumulation_steps": run.grad_accum,
        "gradient_checkpointing": run.recompute == "full",
        "bf16": low == "bfloat16",
        "fp16": low == "float16",
        "optim": run.optimizer,
        "loss_type": {"chunked": "chunked_nll"}.get(run.loss, "nll"),
    }
    if run.loss == "fused_linear" or (run.liger and "loss" not in run.model_fields_set):
        data["use_liger_kernel"] = True
    if run.seq_len is not None:
        data["max_length"] = run.seq_len
    data |= _adapters(run)
    if run.offload.activations == "cpu":
        data["activation_offloading"] = True
    if run.packing:
        data["packing"] = True
    if s.engine in ("fsdp1", "fsdp2"):
        data |= _fsdp(run)
    if s.tp > 1:
        data["parallelism_config"] = {"tp_size": s.tp}
    if s.deepspeed is not None or s.zero or s.engine == "deepspeed":
        from memcalc.importers.formats import deepspeed

        data["deepspeed"] = s.deepspeed if isinstance(s.deepspeed, str) else yaml.safe_load(deepspeed.export(run))
    return str(yaml.safe_dump(data, sort_keys=False))


def _adapters(run: Run) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if run.lora is not None:
        targets = run.lora.target_modules
        data |= {"use_peft": True, "lora_r": run.lora.r, "lora_dropout": run.lora.dropout}
        data["lora_target_modules"] = list(targets) if isinstance(targets, tuple) else targets
        data |= {"use_dora": True} if run.lora.use_dora else {}
        data |= {"lora_modules_to_save": list(run.lora.modules_to_save)} if run.lora.modules_to_save else {}
    if run.quantization in ("nf4", "nf4-dq", "fp4"):
        data |= {"load_in_4bit": True, "bnb_4bit_quant_type": run.quantization[:3], "use_bnb_nested_quant": run.quantization == "nf4-dq"}
    elif run.quantization == "int8":
        data["load_in_8bit"] = True
    return data


def _fsdp(run: Run) -> dict[str, Any]:
    s = run.sharding
    words = ["full_shard" if s.engine == "fsdp2" else s.fsdp_sharding_strategy.lower().lstrip("_")]
    words += ["auto_wrap"] if s.fsdp_auto_wrap_policy != "NO_WRAP" else []
    words += ["offload"] if run.offload.params == "cpu" else []
    if s.engine == "fsdp2":
        config: dict[str, Any] = {"version": 2, "reshard_after_forward": s.reshard_after_forward}
    else:
        config = {"version": 1, "backward_prefetch": s.fsdp_backward_prefetch, "forward_prefetch": s.fsdp_forward_prefetch}
    return {"fsdp": " ".join(words), "fsdp_config": config}
