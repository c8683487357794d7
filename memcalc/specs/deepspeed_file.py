"""From a DeepSpeed JSON, as it is written, to `memcalc.specs.deepspeed.DeepSpeed`: both spellings of keys, old names, "auto"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from memcalc.errors import InputError
from memcalc.specs.deepspeed import Bf16, DeepSpeed, Fp16, LeafModule, OffloadOptimizer, OffloadParam, Part, Zero

P = TypeVar("P", bound=Part)
AUTO = "auto"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLAIN_TOP = _names(
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps steps_per_print wall_clock_breakdown dump_state scheduler "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer prescale_gradients gradient_predivide_factor sparse_gradients memory_breakdown "
    "comms_logger flops_profiler tensorboard wandb csv_monitor monitor_config checkpoint aio zero_optimization bf16 bfloat16 fp16 data_types "
    "communication_data_type gradient_clipping optimizer tensor_parallel torch_autocast amp _comment"
)
"""Top-level keys that are read here, or that do not change what is allocated."""
PASSED_ON = ("communication_data_type", "gradient_clipping", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
PLAIN_ZERO = _names(
    "allgather_partitions allgather_bucket_size load_from_fp32_weights elastic_checkpoint ignore_unused_parameters legacy_stage1 override_module_apply "
    "parameter_alignment log_trace_cache_warnings enable_sanity_checks pipeline_loading_checkpoint cpu_offload cpu_offload_param cpu_offload_params "
    "cpu_offload_use_pin_memory stage3_gather_fp16_weights_on_model_save"
)
PLAIN_OFFLOAD = frozenset(("nvme_path", "fast_init", "buffer_size", "max_in_cpu", "pipeline", "cpuadam_cores_perc"))
PLAIN_FP16 = frozenset(("auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"))


class Trainer(NamedTuple):
    """What transformers' Trainer (and accelerate) put in the place of ``"auto"``; plain DeepSpeed drops such keys and uses its defaults.

    Attributes:
        hidden_size: of the model.
        dtype: of the run: ``bf16.enabled`` and ``fp16.enabled`` follow it.
        max_grad_norm: the Trainer's default is 1.
    """

    hidden_size: int
    dtype: str
    max_grad_norm: float = 1.0


def read_deepspeed(source: Mapping[str, Any] | str, *, trainer: Trainer | None = None, where: str = "sharding.deepspeed") -> DeepSpeed:
    """A configuration from a dict, from JSON text, or from a file.

    Args:
        source: the dict, text that begins with a brace, or the path of a JSON file.
        trainer: how ``"auto"`` is resolved; None: as DeepSpeed itself does.
        where: what messages call the place.

    Raises:
        InputError: the file cannot be read, is no JSON, or a value cannot be used.

    >>> read_deepspeed({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e8}}).zero.max_live_parameters
    100000000
    """
    data = dict(source) if isinstance(source, Mapping) else _load(source, where)
    data = resolve_auto(data, trainer)
    unused: list[str] = []
    zero = _zero(data.get("zero_optimization", {}), where, unused)
    optimizer, types, autocast = _map(data, "optimizer", where), _map(data, "data_types", where), _map(data, "torch_autocast", where)
    unused += [key for key in data if key not in PLAIN_TOP]
    bf16 = _map(data, "bf16" if "bf16" in data else "bfloat16", where)
    params = optimizer.get("params") or {}
    return _validated(
        DeepSpeed,
        {
            "zero": zero,
            "bf16": _block(Bf16, bf16, frozenset(), f"{where}.bf16", unused),
            "fp16": _block(Fp16, _map(data, "fp16", where), PLAIN_FP16, f"{where}.fp16", unused),
            "grad_accum_dtype": types.get("grad_accum_dtype"),
            "optimizer": str(optimizer["type"]).lower() if optimizer.get("type") else None,
            "torch_adam": bool(params.get("torch_adam", False)) if isinstance(params, Mapping) else False,
            "autocast": autocast.get("dtype", "bfloat16") if autocast.get("enabled") else None,
            "autotp_size": _map(data, "tensor_parallel", where).get("autotp_size", 0),
            "unused": tuple(dict.fromkeys(unused)),
        }
        | {key: data[key] for key in PASSED_ON if data.get(key) is not None},
        where,
    )


def resolve_auto(data: Mapping[str, Any], trainer: Trainer | None) -> dict[str, Any]:
    """The same with no ``"auto"`` left: filled in as the Trainer does (HfTrainerDeepSpeedConfig), or dropped.

    >>> auto = {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"}}
    >>> resolve_auto(auto, Trainer(4096, "bfloat16"))
    {'zero_optimization': {'stage': 3, 'reduce_bucket_size': 16777216}, 'bf16': {'enabled': True}}
    >>> resolve_auto(auto, None)
    {'zero_optimization': {'stage': 3}, 'bf16': {}}
    """
    filled: dict[str, Any] = {}
    if trainer is not None:
        hidden = trainer.hidden_size
        filled = {
            "zero_optimization.reduce_bucket_size": hidden * hidden,
            "zero_optimization.stage3_prefetch_bucket_size": 9 * hidden * hidden // 10,
            "zero_optimization.stage3_param_persistence_threshold": 10 * hidden,
            "gradient_clipping": trainer.max_grad_norm,
            "bf16.enabled": trainer.dtype == "bfloat16",
            "bfloat16.enabled": trainer.dtype == "bfloat16",
            "fp16.enabled": trainer.dtype == "float16",
        }
    return _resolved(data, filled, "")


def _resolved(data: Mapping[str, Any], filled: Mapping[str, Any], place: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{place}{key}"
        if isinstance(value, Mapping):
            out[key] = _resolved(value, filled, f"{path}.")
        elif value != AUTO:
            out[key] = value
        elif path in filled:
            out[key] = filled[path]
    return out


def _zero(block: Any, where: str, unused: list[str]) -> Zero:
    """The ``zero_optimization`` block, with its old forms: a bool, and ``cpu_offload``."""
    if isinstance(block, bool):
        block = {"stage": int(block)}
    if not isinstance(block, Mapping):
        raise InputError(f"zero_optimization is {block!r}; a map of keys was expected", where=where)
    data, at = dict(block), f"{where}.zero_optimization"
    if data.get("cpu_offload"):
        data.setdefault("offload_optimizer", {"device": "cpu"})
    if data.get("cpu_offload_param") or data.get("cpu_offload_params"):
        data.setdefault("offload_param", {"device": "cpu"})
    if data.get("stage3_gather_fp16_weights_on_model_save"):
        data.setdefault("gather_16bit_weights_on_model_save", data["stage3_gather_fp16_weights_on_model_save"])
    blocks: tuple[tuple[str, type[Part], frozenset[str]], ...] = (
        ("offload_optimizer", OffloadOptimizer, PLAIN_OFFLOAD),
        ("offload_param", OffloadParam, PLAIN_OFFLOAD),
        ("leaf_module", LeafModule, frozenset()),
    )
    for name, kind, plain in blocks:
        if data.get(name) is None:
            data.pop(name, None)
        else:
            data[name] = _block(kind, _map(data, name, at), plain, f"{at}.{name}", unused)
    return _block(Zero, data, PLAIN_ZERO, at, unused)


def _block(kind: type[P], data: Mapping[str, Any], plain: frozenset[str], where: str, unused: list[str]) -> P:
    """A block from the keys that it has a use for; the others are noted unless they are known to change nothing."""
    known = {name for field, info in kind.model_fields.items() for name in (field, *(getattr(info.validation_alias, "choices", None) or ()))}
    short = where.split(".", 2)[-1]
    unused += [f"{short}.{key}" for key in data if key not in known and key not in plain]
    return _validated(kind, {key: value for key, value in data.items() if key in known and value is not None}, where)


def _validated(kind: type[P], data: Mapping[str, Any], where: str) -> P:
    from pydantic import ValidationError

    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        raise InputError(f"{key} is {first['input']!r}: {first['msg'].lower()}", where=where) from None


def _map(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{key} is {value!r}; a map of keys was expected", where=where)
    return value


def _load(source: str, where: str) -> dict[str, Any]:
    text = source.strip()
    if not text.startswith("{"):
        try:
            text, where = Path(source).expanduser().read_text(encoding="utf-8"), source
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {source!r}: {getattr(error, 'strerror', None) or error}; give a DeepSpeed JSON", where=where) from None
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=where) from None
    if not isinstance(data, dict):
        raise InputError("holds no map of keys; a DeepSpeed configuration was expected", where=where)
    return data


__all__ = ["AUTO", "Trainer", "read_deepspeed", "resolve_auto"]
