"""GLM-4.5 and 4.6: grouped-query attention of which half a head is turned, and DeepSeek-V3's experts.

Source: transformers, models/glm4_moe/modeling_glm4_moe.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("glm4_moe",)
ARCHITECTURES = {"Glm4MoeForCausalLM": "glm4_moe"}


def spec(config: Config) -> ModelSpec:
    """The first layers are dense; queries and keys may have a norm on each head."""
    sizes = decoder.read_sizes(config)
    norm, kinds, sparse = RMSNorm(sizes.hidden), moe.after_dense(config, sizes.num_layers), experts(config, sizes.hidden)
    rotary = Rotary(text.partial_rotary(config, sizes.head_dim, default=0.5), sliced=True)
    head_norm = RMSNorm(Axis("head_dim", sizes.head_dim)) if config.bool("use_qk_norm", default=False) else None
    attention = decoder.attention(sizes, qkv_bias=config.bool("attention_bias", default=False), q_norm=head_norm, k_norm=head_norm, rotary=rotary)
    layers = moe.layers(kinds, norm=norm, self_attn=attention, sparse=sparse, dense=decoder.gated_mlp(sizes, config.str("hidden_act")))
    whole = decoder.causal_lm(config, sizes, layers, norm=norm, rotary=rotary)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sum(kinds)))
