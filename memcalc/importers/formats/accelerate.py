"""accelerate's configuration, old and new keys: DDP, DeepSpeed, FSDP1, FSDP2, Megatron, and its parallelism_config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import fsdp
from memcalc.importers.facts import ACCELERATE, DEEPSPEED, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.links import name_deepspeed
from memcalc.importers.rules import names, real_number, unless, when, whole_number
from memcalc.specs.run import Run

VERSION = "accelerate 1.15"
DISTRIBUTED = {
    "no": "ddp",
    "multi_gpu": "ddp",
    "multi_cpu": None,
    "deepspeed": "deepspeed",
    "fsdp": "fsdp",
    "megatron_lm": "megatron",
    "multi_npu": "ddp",
    "multi_xpu": "ddp",
}


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``compute_environment``, ``distributed_type``, or FSDP beside a number of processes."""
    return any(key in keys for key in ("compute_environment", "distributed_type")) or (
        "num_processes" in keys and ("fsdp_config" in keys or "mixed_precision" in keys)
    )


def _distributed(facts: Facts, entry: Entry) -> None:
    kind = "no" if entry.value is False else entry.word
    if kind not in DISTRIBUTED:
        raise InputError(f"distributed_type is {entry.value!r}; accepted: {', '.join(name.upper() for name in DISTRIBUTED)}", where=entry.where)
    facts.put("~distributed", kind, entry.where)
    if kind == "no":
        facts.put("~world_default", 1, entry.where)
    if DISTRIBUTED[kind] == "fsdp":
        facts.put("~fsdp", value=True, where=entry.where)
    elif DISTRIBUTED[kind] is not None and (kind != "no" or "~engine" not in facts.found):
        facts.put("~engine", DISTRIBUTED[kind], entry.where)


def _precision(facts: Facts, entry: Entry) -> None:
    kind = "no" if entry.value is False else entry.word
    if kind not in ("no", "bf16", "fp16", "fp8"):
        raise InputError(f"mixed_precision is {entry.value!r}; accepted: no, bf16, fp16, fp8", where=entry.where)
    facts.put("~mixed_precision", kind, entry.where)


def _old_fp16(facts: Facts, entry: Entry) -> None:
    facts.put("~mixed_precision", "fp16" if entry.is_on else "no", entry.where)


def _file(facts: Facts, entry: Entry) -> None:
    name_deepspeed(facts, entry.value, where=entry.where)


def _sequence(facts: Facts, entry: Entry) -> None:
    """Sequences split over ranks by DeepSpeed's Ulysses (ALST), which share the states with all others."""
    if entry.number > 1:
        facts.put("~sequence_ranks", entry.number, entry.where)
        facts.put("sharding.cp", entry.number, entry.where)


def _device(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        if entry.word not in ("none", "cpu", "nvme", "false"):
            raise InputError(f"{entry.key} is {entry.value!r}; accepted: none, cpu, nvme", where=entry.where)
        if entry.word in ("cpu", "nvme"):
            facts.put(f"~deepspeed.zero_optimization.{name}", {"device": entry.word}, entry.where)

    return write


def finish(facts: Facts) -> None:
    """FSDP's version, and the configuration that DeepSpeed's inline keys make."""
    if facts.get("~distributed") != "deepspeed":
        for name in [name for name in facts.found if name.startswith("~deepspeed.") or name == "~zero_stage"]:
            del facts.found[name]
    fsdp.finish(facts, default_version=1, framework=VERSION)
    if facts.get("~distributed") == "deepspeed" and "~zero_stage" in facts.found:
        rank, facts.rank = facts.rank, DEEPSPEED - 5
        block = {"stage": facts.get("~zero_stage")}
        facts.put("~deepspeed", {"zero_optimization": block, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, facts.where("~zero_stage"))
        facts.rank = rank


_SIZES = {"dp_replicate_size": "~dp_replicate", "dp_shard_size": "~dp_shard", "tp_size": "sharding.tp", "cp_size": "sharding.cp"}

KEYS: dict[str, Rule] = {
    "distributed_type": _distributed,
    "mixed_precision": _precision,
    "fp16": _old_fp16,
    "num_processes": whole_number("~world"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    **fsdp.keys_below("fsdp_config."),
    "deepspeed_config.deepspeed_config_file": _file,
    "deepspeed_config.zero_stage": whole_number("~zero_stage"),
    "deepspeed_config.offload_optimizer_device": _device("offload_optimizer"),
    "deepspeed_config.offload_param_device": _device("offload_param"),
    "deepspeed_config.zero3_init_flag": "sharding.zero3_init_flag",
    "deepspeed_config.gradient_accumulation_steps": whole_number("grad_accum"),
    "deepspeed_config.gradient_clipping": real_number("~deepspeed.gradient_clipping"),
    "deepspeed_config.deepspeed_moe_layer_cls_names": unless(why="leaf modules are gathered whole"),
    "deepspeed_config.*": unless(),
    "parallelism_config.*sp_size": _sequence,
    **{f"parallelism_config.{prefix}{name}": whole_number(fact) for name, fact in _SIZES.items() for prefix in ("", "parallelism_config_")},
    "fp8_config.backend": "~fp8_backend",
    "fp8_config.enable_fsdp_float8_all_gather": unless("false", why="weights are gathered in bf16, which is more"),
    "dynamo_config.dynamo_backend": unless("no", "false", why="compiled code keeps other tensors than the modules that are counted"),
    "megatron_lm_config.megatron_lm_tp_degree": whole_number("sharding.tp"),
    "megatron_lm_config.megatron_lm_pp_degree": whole_number("sharding.pp"),
    "megatron_lm_config.megatron_lm_sequence_parallelism": "sharding.sp",
    "megatron_lm_config.megatron_lm_use_distributed_optimizer": "sharding.use_distributed_optimizer",
    "megatron_lm_config.megatron_lm_recompute_activations": when("recompute", "selective"),
    "megatron_lm_config.megatron_lm_num_micro_batches": whole_number("grad_accum"),
    "cpu_offload": unless("false"),
    "use_cpu": unless("false"),
    "num_machines": whole_number("~machines"),
}

FORMAT = Format(
    name="accelerate",
    title="accelerate YAML",
    version=VERSION,
    rank=ACCELERATE,
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *fsdp.ignored_below("fsdp_config."),
        *names(
            "compute_environment debug downcast_bf16 machine_rank main_process_ip main_process_port main_training_function rdzv_backend same_network "
            "tpu_* gpu_ids enable_cpu_affinity commands command_file dynamo_backend dynamo_config.* deepspeed_config fsdp_config parallelism_config "
            "megatron_lm_config megatron_lm_config.*gradient_clipping mpirun_config* ipex_config* fp8_config* deepspeed_hostfile tpu_zone "
            "deepspeed_config.zero3_save_16bit_model deepspeed_config.deepspeed_multinode_launcher deepspeed_config.deepspeed_hostfile "
            "deepspeed_config.deepspeed_exclusion_filter deepspeed_config.deepspeed_inclusion_filter deepspeed_config.offload_*_nvme_path "
            "deepspeed_config.seq_parallel_communication_data_type parallelism_config.*sp_backend parallelism_config.*sp_seq_length* "
            "parallelism_config.*sp_attn* parallelism_config.*cp_comm_strategy aws_* ec2_* iam_* profile region sagemaker* additional_args "
            "base_job_name py_version pytorch_version transformers_version image_uri num_cpu_threads_per_process"
        ),
    ),
    finish=finish,
    order=20,
    strict=True,
    notes="The number of processes is a total. Under FSDP and mixed precision accelerate holds trained weights in fp32 and computes in the policy's "
    "dtype; gradients are reduced in that dtype, at the last micro-batch of a step. An unknown key at the top is refused, as accelerate refuses it.",
)


def export(run: Run) -> str:
    """The configuration that a run stands for.

    Raises:
        InputError: accelerate cannot do it.
    """
    import yaml

    s, engine = run.sharding, run.sharding.engine or ("deepspeed" if run.sharding.deepspeed or run.sharding.zero else "ddp")
    if engine == "megatron" or s.pp > 1:
        raise InputError("accelerate's configuration cannot say this: pipeline stages and Megatron's engine are left to its own flags", where="sharding.engine")
    low = run.autocast or (run.dtype if run.dtype in ("bfloat16", "float16") else None)
    data: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": {"deepspeed": "DEEPSPEED", "fsdp1": "FSDP", "fsdp2": "FSDP"}.get(engine, "MULTI_GPU"),
        "mixed_precision": {"bfloat16": "bf16", "float16": "fp16"}.get(low or "", "no"),
        "num_machines": 1,
        "num_processes": run.hardware.gpus or (s.dp or 1) * s.tp * s.cp,
    }
    if engine != "deepspeed" and run.autocast is None:
        data["mixed_precision"] = "no"
    if engine in ("fsdp1", "fsdp2"):
        data["fsdp_config"] = _fsdp(run, engine)
    if engine == "deepspeed":
        if s.deepspeed is not None:
            raise InputError(
                "the DeepSpeed configuration stands in a file of its own: export deepspeed, and name it in deepspeed_config_file", where="sharding.deepspeed"
            )
        data["deepspeed_config"] = {
            "zero_stage": s.zero or 0,
            "offload_optimizer_device": run.offload.optimizer or "none",
            "offload_param_device": run.offload.params or "none",
            "zero3_init_flag": s.zero3_init_flag,
            "gradient_accumulation_steps": run.grad_accum,
        }
    if s.tp > 1 or s.cp > 1 or s.dp_replicate > 1:
        shard = (s.dp or (run.hardware.gpus or s.tp * s.cp) // (s.tp * s.cp)) // s.dp_replicate
        sizes = {"dp_replicate": s.dp_replicate, "dp_shard": shard, "tp": s.tp, "cp": s.cp}
        data["parallelism_config"] = {f"parallelism_config_{name}_size": size for name, size in sizes.items()}
    return str(yaml.safe_dump(data, sort_keys=False))


def _fsdp(run: Run, engine: str) -> dict[str, Any]:
    s = run.sharding
    offloaded = run.offload.params == "cpu"
    common = {"fsdp_auto_wrap_policy": s.fsdp_auto_wrap_policy, "fsdp_offload_params": offloaded, "fsdp_state_dict_type": "SHARDED_STATE_DICT"}
    common["fsdp_activation_checkpointing"] = run.recompute == "full"
    if engine == "fsdp2":
        return {"fsdp_version": 2, "fsdp_reshard_after_forward": s.reshard_after_forward, **common}
    return {
        "fsdp_version": 1,
        "fsdp_sharding_strategy": s.fsdp_sharding_strategy.lstrip("_"),
        "fsdp_backward_prefetch": s.fsdp_backward_prefetch,
        "fsdp_forward_prefetch": s.fsdp_forward_prefetch,
        **common,
    }
