"""Qwen 3-VL: Qwen 3 with positions in three planes; the tower's middle layers feed the text's first layers, too.

Source: transformers, models/qwen3_vl/modeling_qwen3_vl.py.
"""

from __future__ import annotations

from memcalc.models.config import Config
from memcalc.models.families import _packed as packed
from memcalc.models.families import _vision as vision
from memcalc.models.families import qwen3, qwen3_moe
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text")
ARCHITECTURES = {"Qwen3VLForConditionalGeneration": "qwen3_vl", "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe"}


def spec(config: Config) -> ModelSpec:
    """The whole, or its text model alone, which never has windows."""
    if config.model_type.endswith("_text"):
        config.data = {**config.data, "use_sliding_window": False}
        return packed.with_planes((qwen3_moe if "moe" in config.model_type else qwen3).spec(config), "interleaved")
    return packed.qwen3_model(config, vision.text_model(config))
