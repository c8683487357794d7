"""Mistral 7B, Nemo and Small: Llama's layer with a sliding window.

Source: transformers, models/mistral/modeling_mistral.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("mistral",)
ARCHITECTURES = {"MistralForCausalLM": "mistral"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU without biases; every layer sees the same window."""
    sizes = decoder.read_sizes(config)
    norm = RMSNorm(sizes.hidden)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, window=config.optional_int("sliding_window")),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act")),
    )
    return decoder.causal_lm(config, sizes, (Block("layers", layer, sizes.num_layers),), norm=norm)
