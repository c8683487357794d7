"""Qwen 3, dense: Llama's layer with a norm on each head's queries and keys.

Source: transformers, models/qwen3/modeling_qwen3.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("qwen3",)
ARCHITECTURES = {"Qwen3ForCausalLM": "qwen3"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention with QK-norm and SwiGLU; upper layers may see a window only."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm, head_norm = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim))
    bias, mlp = config.bool("attention_bias"), decoder.gated_mlp(sizes, config.str("hidden_act"))

    def layer(window: int | None) -> DecoderLayer:
        return DecoderLayer(
            input_layernorm=norm,
            self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm, window=window),
            post_attention_layernorm=norm,
            mlp=mlp,
        )

    return decoder.causal_lm(config, sizes, decoder.layer_blocks(decoder.windows(config, sizes.num_layers), layer), norm=norm)
