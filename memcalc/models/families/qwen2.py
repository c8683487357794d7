"""Qwen 1.5, 2 and 2.5: Llama's layer with biases on queries, keys and values.

Source: transformers, models/qwen2/modeling_qwen2.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("qwen2",)
ARCHITECTURES = {"Qwen2ForCausalLM": "qwen2"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU; upper layers may see a window only."""
    sizes = decoder.read_sizes(config)
    norm, mlp = RMSNorm(sizes.hidden), decoder.gated_mlp(sizes, config.str("hidden_act"))

    def layer(window: int | None) -> DecoderLayer:
        return DecoderLayer(
            input_layernorm=norm,
            self_attn=decoder.attention(sizes, qkv_bias=True, window=window),
            post_attention_layernorm=norm,
            mlp=mlp,
        )

    return decoder.causal_lm(config, sizes, decoder.layer_blocks(decoder.windows(config, sizes.num_layers), layer), norm=norm)
