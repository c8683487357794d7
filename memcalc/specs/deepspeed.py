"""The parts of a DeepSpeed JSON that bear on memory, with DeepSpeed's own defaults (checked against 0.19.8, deepspeed/runtime/zero/config.py).

Sizes that DeepSpeed counts in elements are counts here, too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from memcalc.units import dtype_name


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _dtype(value: Any) -> Any:
    return dtype_name(value) if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Elements = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Dtype = Annotated[str, BeforeValidator(_dtype)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Device = Literal["none", "cpu", "nvme"]


def _stage3(name: str, default: int) -> Any:
    """A key that is spelt with and without ``stage3_``."""
    return Field(default, validation_alias=AliasChoices(name, f"stage3_{name}"))


class Part(BaseModel):
    """Base of the blocks: immutable; keys that are not here have been taken out before (`memcalc.specs.deepspeed_file`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)


class OffloadOptimizer(Part):
    """``zero_optimization.offload_optimizer``."""

    device: Device = "none"
    pin_memory: bool = True
    buffer_count: Elements = 4
    ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    pipeline_read: bool = False
    pipeline_write: bool = False


class OffloadParam(Part):
    """``zero_optimization.offload_param``."""

    device: Device = "none"
    pin_memory: bool = True
    buffer_count: Elements = 5
    buffer_size: Elements = 100_000_000
    max_in_cpu: Elements = 1_000_000_000


class LeafModule(Part):
    """``zero_optimization.leaf_module``: modules that stage 3 takes as one, with all that is below them."""

    classes: Names = ("MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock")
    name_suffixes: Names = ()


class Zero(Part):
    """``zero_optimization``."""

    stage: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=3)] = 0
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    reduce_bucket_size: Annotated[int, BeforeValidator(_whole), Field(gt=0)] = 500_000_000
    use_multi_rank_bucket_allreduce: bool = True
    overlap_comm: bool | None = None
    compute_grad_norm: bool = True
    offload_optimizer: OffloadOptimizer = OffloadOptimizer.model_construct()
    offload_param: OffloadParam = OffloadParam.model_construct()
    sub_group_size: Elements = 1_000_000_000
    prefetch_bucket_size: Elements = _stage3("prefetch_bucket_size", 50_000_000)
    param_persistence_threshold: Elements = _stage3("param_persistence_threshold", 100_000)
    model_persistence_threshold: Elements = _stage3("model_persistence_threshold", 2**63 - 1)
    max_live_parameters: Elements = _stage3("max_live_parameters", 1_000_000_000)
    max_reuse_distance: Elements = _stage3("max_reuse_distance", 1_000_000_000)
    allgather_sequential: bool = _stage3("allgather_sequential", default=False)
    gather_16bit_weights_on_model_save: bool = _stage3("gather_16bit_weights_on_model_save", default=False)
    memory_efficient_linear: bool = True
    round_robin_gradients: bool = False
    zero_hpz_partition_size: Elements = 1
    mics_shard_size: int = -1
    leaf_module: LeafModule = LeafModule.model_construct()

    @property
    def overlaps(self) -> bool:
        """Whether reduction runs beside backward; by default at stage 3 alone."""
        return self.overlap_comm if self.overlap_comm is not None else self.stage == 3


class Bf16(Part):
    """``bf16``."""

    enabled: bool = False
    immediate_grad_update: bool = False
    check_grad_overflow: bool = True
    bf16_master_weights_and_grads: bool = False
    bf16_optimizer_states: bool = False


class Fp16(Part):
    """``fp16``."""

    enabled: bool = False
    fp16_master_weights_and_grads: bool = False


class DeepSpeed(Part):
    """A DeepSpeed configuration.

    Attributes:
        zero, bf16, fp16: the blocks of these names.
        grad_accum_dtype: ``data_types.grad_accum_dtype``; None: that of the weights.
        communication_data_type: in which gradients are reduced; None: that of the weights.
        gradient_clipping: 0 for none.
        optimizer: ``optimizer.type``, lower case; None where the program makes its own.
        torch_adam: ``optimizer.params.torch_adam``: torch's AdamW instead of DeepSpeed's.
        autocast: the dtype of ``torch_autocast``, where it is enabled.
        autotp_size: ``tensor_parallel.autotp_size``.
        train_micro_batch_size_per_gpu, gradient_accumulation_steps: where they are numbers.
        unused: keys that were read and are not understood.
    """

    zero: Zero = Zero.model_construct()
    bf16: Bf16 = Bf16.model_construct()
    fp16: Fp16 = Fp16.model_construct()
    grad_accum_dtype: Dtype | None = None
    communication_data_type: Dtype | None = None
    gradient_clipping: Annotated[float, Field(ge=0)] = 1.0
    optimizer: str | None = None
    torch_adam: bool = False
    autocast: Dtype | None = None
    autotp_size: Elements = 0
    train_micro_batch_size_per_gpu: Annotated[int, Field(ge=1)] | None = None
    gradient_accumulation_steps: Annotated[int, Field(ge=1)] | None = None
    unused: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        """What the model's weights are cast to (DeepSpeedEngine.get_data_types)."""
        return "float16" if self.fp16.enabled else "bfloat16" if self.bf16.enabled else "float32"

    @property
    def master_dtype(self) -> str:
        """What the optimizer steps (ZeROOptimizer._configure_master_weights)."""
        return "float16" if self.fp16.fp16_master_weights_and_grads else "bfloat16" if self.bf16.bf16_master_weights_and_grads else "float32"

    @property
    def gradient_dtype(self) -> str:
        """In which gradients are accumulated."""
        return self.grad_accum_dtype or self.dtype

    @property
    def reduce_dtype(self) -> str:
        """In which they are reduced (DeepSpeedEngine.communication_data_type)."""
        return self.communication_data_type or self.dtype

    @property
    def builds_fused_adam(self) -> bool:
        """Whether DeepSpeed makes the optimizer itself, and makes its FusedAdam (DeepSpeedEngine.get_optimizer_configuration)."""
        return self.optimizer in ("adam", "adamw") and not self.torch_adam and self.zero.offload_optimizer.device == "none"
