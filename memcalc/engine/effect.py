"""Keys that would change nothing: those that cannot be had here are errors, another engine's knobs are listed as ignored."""

from __future__ import annotations

from memcalc.errors import InputError
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
}
"""The engines that read each of the engines' own keys."""

OFFLOADS = ("deepspeed", "fsdp1", "fsdp2")
"""Engines that keep states on the host."""


def ignored_knobs(run: Run, engine: str) -> tuple[str, ...]:
    """Engines' keys that were given and that this engine does not read."""
    given = run.sharding.model_fields_set
    return tuple(f"sharding.{key}: engine {engine} has no such knob" for key, engines in KNOBS.items() if key in given and engine not in engines)


def refuse(run: Run, engine: str) -> None:
    """Say no to what is asked and cannot be given.

    Raises:
        InputError: a key whose effect is not known for this code or engine; leaving it out is the honest answer.
    """
    if run.recompute == "selective" and run.code == "transformers":
        raise InputError("transformers' own checkpointing takes whole layers; use none or full, or code: megatron", where="recompute")
    if run.sharding.sp and run.code == "transformers":
        raise InputError("transformers' modules have no sequence parallelism beside tp; use code: megatron", where="sharding.sp")
    if run.sharding.sp and run.sharding.tp == 1:
        raise InputError("sequence parallelism splits over the tensor-parallel ranks; give tp", where="sharding.sp")
    for key in ("optimizer", "params"):
        if getattr(run.offload, key) is not None and engine not in OFFLOADS:
            raise InputError(f"engine {engine} keeps its {key} on the card; use engine {', '.join(OFFLOADS)}", where=f"offload.{key}")
