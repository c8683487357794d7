"""Solar Open: Llama's attention, DeepSeek-V3's experts in every layer.

Source: transformers, models/solar_open/modeling_solar_open.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("solar_open",)
ARCHITECTURES = {"SolarOpenForCausalLM": "solar_open"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention; no layer is dense, so that the file has no ``intermediate_size``."""
    sizes = decoder.read_sizes(config, head_dim_follows=False, intermediate=config.int("moe_intermediate_size"))
    norm, sparse = RMSNorm(sizes.hidden), experts(config, sizes.hidden)
    attention = decoder.attention(sizes, qkv_bias=config.bool("attention_bias", default=False))
    layers = moe.layers([True] * sizes.num_layers, norm=norm, self_attn=attention, sparse=sparse, dense=None)
    whole = decoder.causal_lm(config, sizes, layers, norm=norm)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sizes.num_layers))
