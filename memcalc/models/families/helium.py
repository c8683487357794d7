"""Helium: Llama's layer with norms that scale in fp32, turned in neighbouring pairs.

Source: transformers, models/helium/modeling_helium.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("helium",)
ARCHITECTURES = {"HeliumForCausalLM": "helium"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU."""
    sizes, bias = decoder.read_sizes(config, head_dim_follows=False), config.bool("attention_bias", default=False)
    norm, rotary = RMSNorm(sizes.hidden, "fp32_weight"), Rotary(sizes.head_dim, style="repeated")
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, rotary=rotary),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"), bias=config.bool("mlp_bias", default=False)),
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
    )
