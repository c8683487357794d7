"""Youtu-LLM: DeepSeek-V3's latent attention with dense networks.

Source: transformers, models/youtu/modeling_youtu.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("youtu",)
ARCHITECTURES = {"YoutuForCausalLM": "youtu"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of latent attention and SwiGLU."""
    sizes = latent.read_sizes(config)
    norm, rotary = RMSNorm(sizes.common.hidden), Rotary(sizes.rope, "pairs" if config.bool("rope_interleave", default=True) else "half")
    attention = latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False))
    layer = DecoderLayer(norm, attention, norm, decoder.gated_mlp(sizes.common, config.str("hidden_act")))
    return decoder.causal_lm(config, sizes.common, (Block("layers", layer, sizes.common.num_layers),), norm=norm, rotary=rotary)
