"""What a DeepSpeed configuration decides about a run: the stage, the dtype of the weights, offload, and what was left open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.errors import InputError
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.specs.deepspeed import DeepSpeed


class Settled(NamedTuple):
    """A run with its DeepSpeed configuration.

    Attributes:
        run: with what the configuration says in the place of what was left open.
        deepspeed: the configuration; None under other engines.
        assumptions, ignored: what was decided, what could not be used.
    """

    run: Run
    deepspeed: DeepSpeed | None = None
    assumptions: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def settle(run: Run, *, hidden_size: int) -> Settled:
    """Read the configuration that a run names, or make the one that its keys imply.

    Args:
        run: as typed.
        hidden_size: of the model; transformers' Trainer puts sizes made of it in the place of ``"auto"``.

    Raises:
        InputError: it cannot be read, or says another stage than the run.
    """
    if not uses_deepspeed(run):
        return Settled(run)
    if run.sharding.deepspeed is None:
        return Settled(run, implied(run), ("DeepSpeed's own defaults (reduce_bucket_size 5e8, …): no configuration was given",))
    from memcalc.specs.deepspeed_file import AUTO, Trainer, read_deepspeed

    by_trainer = run.code == "transformers" and run.sharding.deepspeed_auto == "trainer"
    trainer = Trainer(hidden_size, run.autocast or run.dtype) if by_trainer else None
    found = read_deepspeed(run.sharding.deepspeed, trainer=trainer)
    stage = run.sharding.zero
    if stage is not None and stage != found.zero.stage:
        raise InputError(f"zero is {stage}, but the DeepSpeed configuration says stage {found.zero.stage}; leave one out", where="sharding.zero")
    assumptions = []
    if AUTO in str(run.sharding.deepspeed) or not isinstance(run.sharding.deepspeed, dict):
        assumptions.append(f'DeepSpeed "auto" as {"transformers.Trainer fills it in" if by_trainer else "DeepSpeed drops it"}')
    ignored = [f"deepspeed: {key}" for key in found.unused]
    if found.optimizer not in (None, "adam", "adamw"):
        ignored.append(f"deepspeed: optimizer.type {found.optimizer}; what steps is the run's own optimizer, {run.optimizer}")
    if found.autotp_size > 1 and run.sharding.tp == 1:
        ignored.append(f"deepspeed: tensor_parallel.autotp_size {found.autotp_size}; the run's own tp is 1")
    return Settled(adapted(run, found), with_offload(found, run), tuple(assumptions), tuple(ignored))


def uses_deepspeed(run: Run) -> bool:
    """Whether the engine is DeepSpeed: as said, or as a configuration or a stage implies."""
    sharding = run.sharding
    if sharding.engine is not None:
        return sharding.engine == "deepspeed"
    return run.code != "megatron" and bool(sharding.deepspeed or sharding.zero)


def implied(run: Run) -> DeepSpeed:
    """DeepSpeed's defaults with the run's stage, dtype and offload."""
    from memcalc.specs.deepspeed import Bf16, DeepSpeed, Fp16, Zero

    made = DeepSpeed.model_construct(
        zero=Zero.model_construct(stage=run.sharding.zero or 0),
        bf16=Bf16.model_construct(enabled=run.dtype == "bfloat16"),
        fp16=Fp16.model_construct(enabled=run.dtype == "float16"),
    )
    return with_offload(made, run)


def with_offload(found: DeepSpeed, run: Run) -> DeepSpeed:
    """The run's own offload, where the configuration says nothing of it."""
    from memcalc.specs.deepspeed import OffloadOptimizer, OffloadParam

    zero, changed = found.zero, dict[str, Any]()
    if run.offload.optimizer is not None and zero.offload_optimizer.device == "none":
        changed["offload_optimizer"] = OffloadOptimizer.model_construct(device=run.offload.optimizer)
    if run.offload.params is not None and zero.offload_param.device == "none":
        changed["offload_param"] = OffloadParam.model_construct(device=run.offload.params)
    return found.model_copy(update={"zero": zero.model_copy(update=changed)}) if changed else found


def adapted(run: Run, found: DeepSpeed) -> Run:
    """The run with the configuration's dtypes, which DeepSpeed casts the model to, and its batch where none was typed."""
    changed: dict[str, Any] = {"dtype": found.dtype, "autocast": found.autocast}
    if run.lora is not None and found.dtype != "float32":
        changed["lora"] = run.lora.model_copy(update={"dtype": found.dtype})
    said = {"micro_batch": found.train_micro_batch_size_per_gpu, "grad_accum": found.gradient_accumulation_steps}
    changed |= {key: value for key, value in said.items() if value is not None and key not in run.model_fields_set}
    return run.model_copy(update=changed)


__all__ = ["Settled", "implied", "settle", "uses_deepspeed"]
