"""Qwen 3.5 with images: its text model, dense or with experts, and Qwen 3-VL's tower.

Source: transformers, models/qwen3_5/modeling_qwen3_5.py, models/qwen3_5_moe/modeling_qwen3_5_moe.py.
"""

from __future__ import annotations

from memcalc.models.config import Config
from memcalc.models.families import _packed as packed
from memcalc.models.families import _vision as vision
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("qwen3_5", "qwen3_5_moe")
ARCHITECTURES = {"Qwen3_5ForConditionalGeneration": "qwen3_5", "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe"}


def spec(config: Config) -> ModelSpec:
    """The text model by its own family, the tower beside it."""
    return packed.qwen3_model(config, vision.text_model(config))
