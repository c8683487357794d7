"""Ministral 3: Mistral's layer, whose queries are scaled by their position.

Source: transformers, models/ministral3/modeling_ministral3.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("ministral3",)
ARCHITECTURES = {"Ministral3ForCausalLM": "ministral3"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU without biases; every layer sees the same window."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm, window = RMSNorm(sizes.hidden), config.optional_int("sliding_window")
    attention = replace(decoder.attention(sizes, window=window), tempered=True)
    layer = DecoderLayer(norm, attention, norm, decoder.gated_mlp(sizes, config.str("hidden_act")))
    return decoder.causal_lm(config, sizes, (Block("layers", layer, sizes.num_layers),), norm=norm)
