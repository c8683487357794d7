"""Configurations that frameworks ship, by the names that people write: DeepSpeed's of LLaMA-Factory, ms-swift and axolotl, torchtune's own recipes."""

from __future__ import annotations

import json
import re
from typing import Any

from memcalc.resources import config_path

_LLAMA_FACTORY = re.compile(r"ds_z([0-3])(_offload)?_config\.json")
_SWIFT = re.compile(r"zero([0-3])(_offload)?")
_AXOLOTL = re.compile(r"zero([1-3])(_bf16)?(_cpuoffload_(all|params))?\.json")


def preset(path: str) -> tuple[str, dict[str, Any]] | None:
    """The configuration behind a name, and what it is called; None for a name that nobody ships.

    >>> preset("examples/deepspeed/ds_z3_config.json")[1]["zero_optimization"]["stage"]
    3
    """
    name = path.rpartition("/")[2]
    if match := _LLAMA_FACTORY.fullmatch(name):
        return f"LLaMA-Factory's {name}", _config(int(match.group(1)), offload=bool(match.group(2)), overlap=False, bucket=5e8)
    if match := _SWIFT.fullmatch(path):
        return f"ms-swift's {path}.json", _config(int(match.group(1)), offload=bool(match.group(2)), overlap=False, bucket=2e8)
    if match := _AXOLOTL.fullmatch(name):
        stage = int(match.group(1))
        made = _config(stage, offload=match.group(4) == "all", overlap=True, bucket=None)
        if match.group(4) == "params":
            made["zero_optimization"]["offload_param"] = {"device": "cpu"}
        if stage == 3:
            made["zero_optimization"] |= {"sub_group_size": 0, "max_live_parameters": 0, "max_reuse_distance": 0}
        return f"axolotl's {name}", made
    return _torchtune(path) if re.fullmatch(r"[a-z]\w*/[\w.]+", path) else None


def _torchtune(name: str) -> tuple[str, dict[str, Any]] | None:
    """One of torchtune's recipes' configurations, as ``tune ls`` names them."""
    shipped = json.loads(config_path("torchtune.json").read_text(encoding="utf-8"))
    own = shipped["configurations"].get(name)
    if own is None:
        return None
    adapted = shipped["adapters"] if "lora_" in own["model._component_"] else {}
    return f"torchtune's {name}.yaml", {**shipped["all"], **adapted, **own}


def _config(stage: int, *, offload: bool, overlap: bool, bucket: float | None) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": overlap, "contiguous_gradients": True}
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
