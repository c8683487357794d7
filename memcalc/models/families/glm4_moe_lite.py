"""GLM-4.7-Flash: DeepSeek-V3's latent attention and experts in the sizes of a small model.

Source: transformers, models/glm4_moe_lite/modeling_glm4_moe_lite.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.models.families.deepseek_v32 import sparse_layers
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("glm4_moe_lite",)
ARCHITECTURES = {"Glm4MoeLiteForCausalLM": "glm4_moe_lite"}


def spec(config: Config) -> ModelSpec:
    """The first layer is dense, unless the file says otherwise."""
    sizes = latent.read_sizes(config)
    common, kinds = sizes.common, sparse_layers(config, sizes.common.num_layers, first=1)
    rotary = Rotary(sizes.rope, "pairs" if config.bool("rope_interleave", default=True) else "half")
    norm, sparse = RMSNorm(common.hidden), experts(config, common.hidden)
    layers = moe.layers(
        kinds,
        norm=norm,
        self_attn=latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False)),
        sparse=sparse,
        dense=decoder.gated_mlp(common, config.str("hidden_act")),
    )
    whole = decoder.causal_lm(config, common, layers, norm=norm, rotary=rotary)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sum(kinds)))
