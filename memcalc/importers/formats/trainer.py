"""TrainingArguments as YAML or JSON: transformers' scripts, TRL's SFTConfig, DPOConfig and GRPOConfig, the alignment handbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, fsdp, liger, reinforcement, scripts, training_arguments, trl
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.reinforcement import TRL
from memcalc.importers.rules import Write, each, names, real_number, switch, unless, whole_number
from memcalc.importers.source import Source
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


def _generations(facts: Facts, entry: Entry) -> None:
    facts.put("~grpo", entry.value, entry.where)
    facts.put("rollout.num_generations", entry.number, entry.where)


def _loss(facts: Facts, entry: Entry) -> None:
    several = entry.value if isinstance(entry.value, list) else [entry.value]
    for one in (entry._replace(value=item) for item in several):
        if one.word in ("nll", "chunked_nll", "dft"):
            facts.put("loss", "chunked" if one.word == "chunked_nll" else "cross_entropy", one.where)
        elif one.word.startswith("dpo"):  # open-instruct's names
            facts.put("~trl", "dpo", one.where)
        elif one.word not in LOSSES:
            facts.leave(one)
    facts.put("~loss_type", several[0] if several else "", entry.where)


def _trainer(facts: Facts, entry: Entry) -> None:
    """Whose class a script makes (`memcalc.importers.script`)."""
    if entry.word in ("transformers", "generate"):
        facts.put(scripts.MARK, value=True, where=entry.where)
        if entry.word == "generate":
            facts.put("task", "inference", entry.where)
            facts.derive("micro_batch", 1, entry.where)
    else:
        trl.named(facts, entry.word, where=entry.where, sure=True)


def _old(facts: Facts, entry: Entry) -> None:
    facts.put("~old_names", value=True, where=entry.where)


def _first(facts: Facts, entry: Entry) -> None:
    facts.put("~first_names", value=True, where=entry.where)


def _of_version(version: int) -> Write:
    """A key that transformers 4 alone has, or 5."""

    def write(facts: Facts, entry: Entry) -> None:
        if f"~transformers_{version}" not in facts.found:
            facts.put(f"~transformers_{version}", entry.key, entry.where)

    return write


YOUNGER = {
    "recompute": "gradient_checkpointing since 0.22 (before: --recompute none)",
    "~mixed_precision": "bf16 since 0.19 (before: --autocast none)",
}
"""Defaults of TRL that older versions do not have, as facts. Source: trl/trainer/dpo_config.py of v0.18.0 to v0.22.0."""
LOSSES = names(
    "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_unpaired aot_pair apo_zero apo_down discopop sigmoid_norm simpo kto bco "
    "apo_zero_unpaired grpo dapo bnpo dr_grpo cispo luspo sapo vespo"
)
"""Losses of TRL's trainers over log-probabilities of answers, which hold the same."""
OF_4 = names(
    "overwrite_output_dir logging_dir warmup_ratio save_safetensors no_cuda group_by_length include_tokens_per_second "
    "half_precision_backend fp16_backend fp16_opt_level jit_mode_eval past_index per_gpu_train_batch_size per_gpu_eval_batch_size push_to_hub_model_id "
    "push_to_hub_token ray_scope tpu_num_cores use_mps_device include_inputs_for_metrics"
)
OF_5 = names(
    "activation_checkpointing_kwargs dataloader_in_order dataloader_multiprocessing_context ddp_static_graph enable_jit_checkpoint use_cache "
    "train_sampling_strategy trackio_bucket_id"
)
"""Keys of TrainingArguments in transformers 4.57 and not in 5.24, and the other way round."""


KEYS: dict[str, Rule] = {
    **training_arguments.KEYS,
    **adapters.KEYS,
    **reinforcement.KEYS,
    "model_id": "model",
    "model": "model",
    "model_path": "model",
    "max_length": whole_number("seq_len"),
    "max_seq_length": each(whole_number("seq_len"), _old, _first),
    "torch_dtype": each(training_arguments.load_dtype, _old),
    **scripts.KEYS,
    **scripts.PLACES,
    "accelerate_config": trl.name_accelerate,
    "num_processes": whole_number("~world"),
    "num_generations": _generations,
    "loss_type": _loss,
    "beta": real_number("~beta"),
    "trl_trainer": _trainer,
    "vllm_*": unless(),
    "ref_model*": unless(),
    "packing": switch("~packing"),
    "packing_strategy": "~packing_strategy",
    "padding_free": switch("~padding_free"),
    "cpo_alpha": real_number("~cpo_alpha"),
    "desirable_weight": "~desirable_weight",
    "undesirable_weight": "~desirable_weight",
    "center_rewards_coefficient": "~center_rewards",
    **dict.fromkeys(OF_4, _of_version(4)),
    **dict.fromkeys(OF_5, _of_version(5)),
    "evaluation_strategy": each(_of_version(4), training_arguments.evaluates),
}


def prepare(source: Source) -> Source:
    """A file of FSDP's keys alone is what ``fsdp_config`` names.

    The places of its keys move with them.
    """
    alone = source.data and all(key.removeprefix("fsdp_") in (*fsdp.KEYS, *fsdp.IGNORED) and key != "activation_checkpointing" for key in source.data)
    if not alone:
        return source
    return source._replace(data={"fsdp_config": source.data}, lines={("fsdp_config", *place): line for place, line in source.lines.items()})


def finish(facts: Facts) -> None:
    """TRL's defaults, where the keys are TRL's, and those of transformers otherwise; and where the model is."""
    _filled(facts)
    scripts.place(facts)


def _filled(facts: Facts) -> None:
    training_arguments.finish(facts)
    used = {
        name
        for name in ("seq_len", "~lora", "lora.r", "~beta", "~grpo", "~reward", "~packing", "~padding_free", "~bits", "~trl")
        if name in facts.found and facts.found[name].rank >= facts.rank
    }
    if scripts.MARK in facts.found:
        used -= {"seq_len", "~lora", "lora.r", "~bits"}
        scripts.finish(facts)
    task = trl.task_of(facts)
    if task is not None:
        facts.put("task", task, facts.where("~trl") if "~trl" in facts.found else "the keys of its trainer")
    if not used and facts.get("task", "train") in ("train", "inference"):
        _loaded(facts)
        _generates(facts)
        training_arguments.evaluated(facts)
        return
    if "~first_names" not in facts.found:
        facts.default("recompute", "full", TRL)
        facts.default("~mixed_precision", "bf16", TRL)
        younger = [text for name, text in YOUNGER.items() if facts.found[name].is_default]
        if younger:
            facts.assumed.append(f"TRL's defaults are young: {'; '.join(younger)}")
    facts.default("~load_dtype", "float32", TRL)
    facts.default("seq_len", 1024, TRL)
    training_arguments.packed(facts)
    reinforcement.finish(facts)
    if "~old_names" not in facts.found and "task" not in facts.found:
        facts.default("loss", "chunked", TRL)
    elif facts.get("task") in trl.WHOLE and "loss" not in facts.found:
        facts.assumed.append("whole logits, as in TRL before 1.16; later it finds log-probabilities in tiles (--loss chunked)")
    if facts.get("~lora", False):
        facts.default("lora.r", 16, TRL)
        facts.default("lora.target_modules", "all-linear", TRL)
        if "peft" not in facts.formats:
            facts.default("lora.dropout", 0.05, TRL)
    training_arguments.evaluated(facts)


def _generates(facts: Facts) -> None:
    """A script that only generates computes in the dtype in which it loads the model."""
    if facts.get("task") == "inference":
        facts.derive("dtype", str(facts.get("~load_dtype")), facts.where("~load_dtype"))
        for key in ("grad_accum", "optimizer"):
            if key in facts.found and facts.found[key].is_default:
                del facts.found[key]


def _loaded(facts: Facts) -> None:
    """In which dtype a script's own call loads the model, which is not among its arguments: by the version of transformers, as far as keys show it."""
    old, new = facts.get("~transformers_4"), facts.get("~transformers_5")
    if new is not None and old is None:
        facts.default("~load_dtype", "bfloat16", f"from_pretrained in transformers 5, which takes the checkpoint's own ({new} is a key of its)")
    else:
        known = f", whose key {old} is" if old is not None else ""
        facts.default(
            "~load_dtype", "float32", f"from_pretrained in transformers 4{known}; 5 takes the checkpoint's own: --dtype bfloat16, or torch_dtype in it"
        )


FORMAT = Format(
    name="trainer",
    title="TrainingArguments (transformers, TRL)",
    version=training_arguments.VERSION,
    rank=TRAINER,
    takes_auto=(*training_arguments.TAKES_AUTO, *scripts.PLACES),
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *training_arguments.IGNORED,
        *adapters.IGNORED,
        *scripts.IGNORED,
        *names(
            "num_generations_* temperature top_p top_k reward_* max_prompt_tokens loss_weights label_smoothing* pad_token eos_token assistant_only_loss "
            "completion_only_loss eval_packing shuffle_dataset model_init_kwargs sync_ref_model attn_kwargs script_args system_prompt pass_rate_* "
            "config_name model_adapter_name num_beams num_proc f_divergence* generate_during_eval truncation_mode ld_alpha discopop_tau use_weighting "
            "simpo_gamma disable_dropout router_aux_loss_coef pad_to_multiple_of importance_sampling_level epsilon* delta mask_truncated_completions "
            "log_completions log_unique_prompts num_completions_to_print scale_rewards min_p repetition_penalty generation_kwargs cache_implementation "
            "vllm_server_* vllm_group_port vllm_model_impl vllm_importance_* vllm_structured_* ds3_gather_* top_entropy_quantile sapo_* vespo_* "
            "use_bias_correction_kl off_policy_* entropy_coef* multi_objective_aggregation lmbda seq_kd gamma lam cliprange* vf_coef kl_coef whiten_rewards "
            "missing_eos_penalty stop_token* max_tool_calling_iterations ignore_bias_buffers normalize_advantages reward_clip_range log_multimodal "
            "use_adaptive_entropy is_encoder_decoder dataset_text_field backend"
        ),
    ),
    defaults={"micro_batch": 8, "grad_accum": 1, "optimizer": "adamw_torch_fused"},
    prepare=prepare,
    finish=finish,
    order=80,
    notes="In which dtype a script loads its model is not among its arguments: where `torch_dtype` (or `dtype`) does not say, it is fp32, as "
    "`from_pretrained` in transformers 4 has it, and the checkpoint's own (bf16) where a key shows that it is transformers 5; the estimate says which, "
    "and `--dtype` decides. TRL's defaults (checkpointing, bf16 mixed precision over fp32 weights, 1,024 tokens, a chunked loss, dropout of 0.05 on "
    "adapters' inputs) hold where the file has keys of TRL's own, or the script its name. Its trainer is known by that name (`dpo.py`, `trl kto`), or by "
    "keys that no other has. An evaluation is shown where its batch is larger than that of training.",
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
    data |= liger.exported(run)
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
