"""GLM-4 0414 (9B, 32B, Z1): GLM with norms after each branch, too.

Source: transformers, models/glm4/modeling_glm4.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import glm
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("glm4",)
ARCHITECTURES = {"Glm4ForCausalLM": "glm4"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and SwiGLU."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm = RMSNorm(sizes.hidden)
    layer = DecoderLayer(norm, glm.attention(config, sizes), norm, glm.mlp(config, sizes), post_mixer_norm=norm, post_mlp_norm=norm)
    return glm.model(config, sizes, layer)
