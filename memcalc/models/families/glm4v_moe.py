"""GLM-4.5V: GLM-4.5 with positions in three planes, and GLM-4.1V's tower.

Source: transformers, models/glm4v_moe/modeling_glm4v_moe.py.
"""

from __future__ import annotations

from memcalc.models.config import Config
from memcalc.models.families import _packed as packed
from memcalc.models.families import _vision as vision
from memcalc.models.families import glm4_moe, glm4v
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("glm4v_moe", "glm4v_moe_text")
ARCHITECTURES = {"Glm4vMoeForConditionalGeneration": "glm4v_moe"}


def spec(config: Config) -> ModelSpec:
    """The whole, or its text model alone, which never has norms on its heads."""
    if config.model_type == "glm4v_moe":
        return glm4v.with_tower(config, vision.text_model(config))
    config.data = {**config.data, "use_qk_norm": False}
    return packed.with_planes(glm4_moe.spec(config), "joined")
