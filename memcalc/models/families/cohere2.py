"""Cohere's Command R7B and A: Command R with windows in three layers of four, whose positions alone are turned.

Source: transformers, models/cohere2/modeling_cohere2.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import ParallelLayer, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.models.families.cohere import command_model, norm_of
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("cohere2",)
ARCHITECTURES = {"Cohere2ForCausalLM": "cohere2"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and SwiGLU."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    sizes = replace(sizes, head_dim=text.whole_heads(config, sizes.hidden.size, sizes.num_heads))
    rotary = Rotary(sizes.head_dim, style="interleaved", precision="all")
    mlp = decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"))

    def layer(window: int | None) -> ParallelLayer:
        attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary, window=window)
        return ParallelLayer(norm_of(sizes), attention if window is not None else replace(attention, rotary=None), mlp)

    pattern, window = config.int("sliding_window_pattern", default=4), config.optional_int("sliding_window", default=4096)
    kinds = text.layer_windows(config, sizes.num_layers, pattern=pattern, window=window)
    return command_model(config, sizes, decoder.layer_blocks(kinds, layer), rotary)
