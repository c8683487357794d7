"""Configurations that frameworks ship, by the names that people write.

DeepSpeed's of LLaMA-Factory, ms-swift, axolotl and LLaVA, accelerate's of TRL and LLaMA-Factory, torchtune's own recipes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from memcalc.resources import config_path

Made = dict[str, Any]


def preset(path: str) -> tuple[str, Made] | None:
    """The configuration behind a name, and what it is called; None for a name that nobody ships.

    >>> preset("examples/deepspeed/ds_z3_config.json")[1]["zero_optimization"]["stage"]
    3
    """
    for pattern, who, make in SHIPPED:
        if match := re.fullmatch(pattern, path):
            return f"{who}'s {match['name']}", make(match)
    return _torchtune(path) if re.fullmatch(r"[a-z]\w*/[\w.]+", path) else None


def _llama_factory(match: re.Match[str]) -> Made:
    made = _config(int(match["stage"]), offload=bool(match["offload"]), overlap=False, bucket=5e8)
    if int(match["stage"]) < 3:
        made["zero_optimization"]["round_robin_gradients"] = True
    return made


def _swift(match: re.Match[str]) -> Made:
    made = _config(int(match["stage"]), offload=bool(match["offload"]), overlap=False, bucket=2e8)
    if int(match["stage"]) < 3:
        made["zero_optimization"]["allgather_bucket_size"] = 2e8
    return made


def _axolotl(match: re.Match[str]) -> Made:
    stage, offloaded = int(match["stage"]), match["offload"]
    made = _config(stage, offload=offloaded == "all", overlap=True, bucket=None)
    zero: Made = {key: value for key, value in made["zero_optimization"].items() if not key.startswith("stage3_max_")}
    if stage == 2:
        zero["offload_optimizer"] = {"device": "cpu"}
    if offloaded == "params":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if stage == 3:
        zero |= {"sub_group_size": 0, "max_live_parameters": 0, "max_reuse_distance": 0}
    if match["compiled"]:
        made["compile"] = {"disable": False, "backend": "inductor"}
    if match["bf16"]:
        made["bf16"] = {"enabled": True}
    if offloaded:
        made |= {"zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True}
    return {**made, "zero_optimization": zero}


def _llava(match: re.Match[str]) -> Made:
    """As InternVL and Qwen-VL have them, too."""
    made = _config(int(match["stage"]), offload=bool(match["offload"]), overlap=True, bucket=None)
    if match["stage"] == "2":
        made["zero_optimization"] |= {"sub_group_size": 1e9, "reduce_bucket_size": "auto"}
    if match["offload"]:
        made["optimizer"] = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}
    return made


def _trl(match: re.Match[str]) -> Made:
    """As open-r1 and the alignment handbook have them, too."""
    if match["stage"]:
        stage = int(match["stage"])
        zero = {"zero_stage": stage, "offload_optimizer_device": "none", "offload_param_device": "none", "zero3_init_flag": stage == 3}
        return _accelerate(8, "DEEPSPEED", deepspeed_config=zero)
    if match["version"] is not None:
        return _fsdp(8, second=match["version"] == "2", offload=False, prefetch=True)
    return _accelerate(1, "NO") if match["kind"] == "single_gpu" else _accelerate(8, "MULTI_GPU")


def _llama_factory_fsdp(match: re.Match[str]) -> Made:
    return _fsdp(2, second=bool(match["version"]), offload=bool(match["offload"]), prefetch=False)


def _fsdp(processes: int, *, second: bool, offload: bool, prefetch: bool) -> Made:
    common = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_cpu_ram_efficient_loading": True, "fsdp_offload_params": offload}
    if second:
        return _accelerate(processes, "FSDP", fsdp_config={**common, "fsdp_version": 2, "fsdp_reshard_after_forward": True})
    first = {"fsdp_version": 1, "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_forward_prefetch": prefetch}
    return _accelerate(processes, "FSDP", fsdp_config={**common, **first, "fsdp_sync_module_states": True, "fsdp_use_orig_params": True})


def _accelerate(processes: int, kind: str, **section: Made) -> Made:
    return {"mixed_precision": "bf16", "num_machines": 1, "num_processes": processes, "distributed_type": kind, **section}


SHIPPED: tuple[tuple[str, str, Callable[[re.Match[str]], Made]], ...] = (
    (r"(?:.*/)?(?P<name>ds_z(?P<stage>[0-3])(?P<offload>_offload)?_config\.json)", "LLaMA-Factory", _llama_factory),
    (r"(?P<name>zero(?P<stage>[0-3])(?P<offload>_offload)?)", "ms-swift", _swift),
    (
        r"(?:.*/)?(?P<name>deepspeed_configs/zero(?P<stage>[1-3])(?P<compiled>_torch_compile)?(?P<bf16>_bf16)?(?:_cpuoffload_(?P<offload>all|params))?\.json)",
        "axolotl",
        _axolotl,
    ),
    (r"(?:.*/)?(?P<name>scripts/zero(?P<stage>[23])(?P<offload>_offload)?\.json)", "LLaVA", _llava),
    (r"(?:.*/)?(?P<name>accelerate_configs/(?P<kind>single_gpu|multi_gpu|ddp|(?:deepspeed_)?zero(?P<stage>[123])|fsdp(?P<version>[12]?))\.yaml)", "TRL", _trl),
    (r"(?:.*/)?(?P<name>accelerate/fsdp(?P<version>2?)_config(?P<offload>_offload)?\.yaml)", "LLaMA-Factory", _llama_factory_fsdp),
)
"""Patterns of names, who ships them, what they hold."""


def _torchtune(name: str) -> tuple[str, Made] | None:
    """One of torchtune's recipes' configurations, as ``tune ls`` names them."""
    shipped = json.loads(config_path("torchtune.json").read_text(encoding="utf-8"))
    own = shipped["configurations"].get(name)
    if own is None:
        return None
    adapted = shipped["adapters"] if "lora_" in own["model._component_"] else {}
    return f"torchtune's {name}.yaml", {**shipped["all"], **adapted, **own}


def _config(stage: int, *, offload: bool, overlap: bool, bucket: float | None) -> Made:
    zero: Made = {"stage": stage, "overlap_comm": overlap, "contiguous_gradients": True}
    if stage == 3:
        zero |= {"reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}
        zero |= {"sub_group_size": 1e9, "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9}
    elif bucket is not None:
        zero |= {"reduce_scatter": True, "reduce_bucket_size": bucket}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": zero,
    }


__all__ = ["preset"]
