"""GLM-4.7-Flash: DeepSeek-V3's latent attention and experts in the sizes of a small model.

Source: transformers, models/glm4_moe_lite/modeling_glm4_moe_lite.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.models.config import Config
from memcalc.models.families import _latent as latent
from memcalc.models.families.deepseek_v3 import model
from memcalc.models.families.deepseek_v32 import sparse_layers
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("glm4_moe_lite",)
ARCHITECTURES = {"Glm4MoeLiteForCausalLM": "glm4_moe_lite"}


def spec(config: Config) -> ModelSpec:
    """The first layer is dense, unless the file says otherwise."""
    sizes = latent.read_sizes(config)
    return model(config, sizes, sparse_layers(config, sizes.common.num_layers, first=1))
