"""Keys that would change nothing: those that cannot be had here are errors, another engine's knobs are listed as ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memcalc.errors import InputError
from memcalc.specs.job import Mesh
from memcalc.specs.run import Run

KNOBS: dict[str, tuple[str, ...]] = {
    "reshard_after_forward": ("fsdp2",),
    "reduce_dtype": ("fsdp1", "fsdp2", "megatron"),
    "zero3_init_flag": ("deepspeed",),
    "deepspeed_auto": ("deepspeed",),
    "fsdp_sharding_strategy": ("fsdp1",),
    "fsdp_backward_prefetch": ("fsdp1",),
    "fsdp_auto_wrap_policy": ("fsdp1",),
    "fsdp_forward_prefetch": ("fsdp1",),
    "fsdp_wrap_ends": ("fsdp2",),
    "sync_each_batch": ("fsdp1", "fsdp2"),
    "gradient_as_bucket_view": ("ddp",),
    "bucket_cap_mb": ("ddp",),
    "use_distributed_optimizer": ("megatron",),
    "gradient_accumulation_fusion": ("megatron",),
    "grad_reduce_in_bf16": ("megatron",),
    "use_precision_aware_optimizer": ("megatron",),
    "main_grads_dtype": ("megatron",),
    "main_params_dtype": ("megatron",),
    "exp_avg_dtype": ("megatron",),
    "exp_avg_sq_dtype": ("megatron",),
}
"""The engines that read each of the engines' own keys."""

OF_CODE: dict[str, tuple[str, ...]] = {
    "cp_comm_type": ("megatron",),
    "make_vocab_size_divisible_by": ("megatron",),
    "cross_entropy_fusion_impl": ("megatron",),
    "moe_pad_expert_input_to_capacity": ("megatron",),
    "moe_token_dispatcher_type": ("megatron",),
    "moe_router_dtype": ("megatron",),
    "moe_grouped_gemm": ("megatron",),
    "moe_permute_fusion": ("megatron",),
    "apply_rope_fusion": ("megatron",),
}
"""Whose modules read each of the keys that say how modules run."""

SLEEPING: dict[str, tuple[str, Callable[[Mesh], Any]]] = {
    **dict.fromkeys(
        (
            "pp_schedule",
            "decoder_first_pipeline_num_layers",
            "decoder_last_pipeline_num_layers",
            "account_for_embedding_in_pipeline_split",
            "account_for_loss_in_pipeline_split",
            "pipeline_model_parallel_layout",
        ),
        ("pp", lambda mesh: mesh.pp),
    ),
    "cp_comm_type": ("cp", lambda mesh: mesh.cp),
    "expert_imbalance": ("ep", lambda mesh: mesh.ep),
}
"""Keys that say how, and the degree that says whether."""

PRECISION_AWARE = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")

OFFLOADS = ("deepspeed", "fsdp1", "fsdp2")
"""Engines that keep states on the host."""
HYBRID = ("megatron", "optimizer", "cpu")
"""What Megatron can put there (HybridDeviceOptimizer)."""


def ignored_knobs(run: Run, engine: str, mesh: Mesh | None = None) -> tuple[str, ...]:
    """Keys that were given and that nobody reads: another engine's or other modules', or those of a degree that is 1."""
    given = run.sharding.model_fields_set
    found = {key: f"engine {engine} has no such knob" for key, engines in KNOBS.items() if engine not in engines}
    found |= {key: f"code {run.code} has no such knob" for key, codes in OF_CODE.items() if run.code not in codes}
    if mesh is not None:
        found |= {key: f"{name} is 1" for key, (name, degree) in SLEEPING.items() if degree(mesh) == 1}
    serving = tuple(f"serving.{key}: code {run.code} has no such knob" for key in type(run.serving).model_fields if key in run.serving.model_fields_set)
    return tuple(f"sharding.{key}: {why}" for key, why in found.items() if key in given) + serving


def _refuse_engine(run: Run, engine: str) -> None:
    if run.code == "megatron" and engine in ("fsdp1", "fsdp2", "deepspeed"):
        raise InputError(f"Megatron's modules shard themselves; engine {engine} around them is not known, use engine megatron", where="sharding.engine")
    if run.sharding.deepspeed is not None and engine != "deepspeed":
        raise InputError(f"engine {engine} reads no DeepSpeed configuration; leave one of them out", where="sharding.deepspeed")


def refuse(run: Run, engine: str) -> None:
    """Say no to what is asked and cannot be given.

    Raises:
        InputError: a key whose effect is not known for this code or engine; leaving it out is the honest answer.
    """
    _refuse_engine(run, engine)
    _refuse_dtypes(run)
    if run.new_tokens and (run.task != "inference" or run.sharding.pp > 1):
        raise InputError("tokens are generated in task inference, without a pipeline; leave it out", where="new_tokens")
    if run.num_beams > 1 and run.task != "inference":
        raise InputError("beams are searched in task inference; leave it out", where="num_beams")
    if run.recompute == "selective" and run.code == "transformers":
        raise InputError("transformers' own checkpointing takes whole layers; use none, full or submodules, or code: megatron", where="recompute")
    if run.sharding.sp and run.code == "transformers":
        raise InputError("transformers' modules have no sequence parallelism beside tp; use code: megatron", where="sharding.sp")
    if run.sharding.sp and run.sharding.tp == 1:
        raise InputError("sequence parallelism splits over the tensor-parallel ranks; give tp", where="sharding.sp")
    for key in ("optimizer", "params"):
        if getattr(run.offload, key) is not None and engine not in OFFLOADS and (engine, key, run.offload.optimizer) != HYBRID:
            raise InputError(f"engine {engine} keeps its {key} on the card; use engine {', '.join(OFFLOADS)}", where=f"offload.{key}")
    if run.serving.kv_cache_dtype != "auto":
        from memcalc.formulas.kv_cache import cache_type

        cache_type(run.serving.kv_cache_dtype)
    _refuse_recomputing(run)
    _refuse_megatron(run, engine)


def _refuse_recomputing(run: Run) -> None:
    for key in ("recompute_method", "recompute_num_layers"):
        if getattr(run, key) is not None and run.recompute != "full":
            raise InputError(f"it says how to recompute whole layers, and recompute is {run.recompute}; give recompute: full", where=key)
    if run.use_reentrant and run.recompute == "none":
        raise InputError("it says how layers are checkpointed, and recompute is none; give recompute: full", where="use_reentrant")
    if run.recompute_num_layers is not None and run.recompute_method is None:
        raise InputError("the layers of what? give recompute_method: uniform or block", where="recompute_num_layers")
    if run.recompute_modules is not None and run.recompute != "selective":
        raise InputError(f"it says which modules run again, and recompute is {run.recompute}; give recompute: selective", where="recompute_modules")


def _refuse_megatron(run: Run, engine: str) -> None:
    if run.code == "megatron":
        for key in ("autocast", "quantization"):
            if getattr(run, key) is not None:
                raise InputError("Megatron's modules compute in the dtype of their weights; leave it out, or use code: transformers", where=key)
    else:
        for key in ("mtp_num_layers", "hidden_dropout", "attention_dropout"):
            if getattr(run, key) is not None:
                raise InputError(f"code {run.code} has no such knob; leave it out, or use code: megatron", where=key)
    sharding = run.sharding
    if engine == "megatron" and not sharding.use_precision_aware_optimizer:
        for key in PRECISION_AWARE:
            if getattr(sharding, key) != "fp32":
                raise InputError("without use_precision_aware_optimizer it can only be fp32", where=f"sharding.{key}")
    if sharding.moe_pad_expert_input_to_capacity and sharding.capacity_factor is None:
        raise InputError("experts have no capacity to pad to; give capacity_factor", where="sharding.moe_pad_expert_input_to_capacity")


def _refuse_dtypes(run: Run) -> None:
    """Dtypes in which torch neither trains nor computes."""
    if run.task == "train" and run.dtype not in ("float32", "bfloat16", "float16", "float64"):
        raise InputError(f"weights of {run.dtype} take no gradient; train in bfloat16, float16 or float32", where="dtype")
    if run.autocast is not None and run.autocast not in ("bfloat16", "float16", "float32"):
        raise InputError(f"torch.autocast has no {run.autocast}; bfloat16 and float16 are what it computes in", where="autocast")
