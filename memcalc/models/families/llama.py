"""Llama 1 to 3.3, and the many models that use its code (Yi, TinyLlama, SmolLM, CodeLlama, DeepSeek's dense ones; EXAONE 3, InternLM 3).

Source: transformers, models/llama/modeling_llama.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("llama", "exaone", "internlm3")
ARCHITECTURES = {"LlamaForCausalLM": "llama", "LLaMAForCausalLM": "llama", "ExaoneForCausalLM": "exaone", "InternLM3ForCausalLM": "internlm3"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU, with biases where the file wants them."""
    sizes = decoder.read_sizes(config, head_dim_follows=config.model_type != "internlm3")
    norm, bias = RMSNorm(sizes.hidden), config.bool("attention_bias")
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act"), bias=config.bool("mlp_bias")),
    )
    return decoder.causal_lm(config, sizes, (Block("layers", layer, sizes.num_layers),), norm=norm)
