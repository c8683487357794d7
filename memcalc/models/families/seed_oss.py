"""Seed-OSS: Llama's layer with biases on queries, keys and values, and dropout on the branches.

Source: transformers, models/seed_oss/modeling_seed_oss.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("seed_oss",)
ARCHITECTURES = {"SeedOssForCausalLM": "seed_oss"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm, rotary = RMSNorm(sizes.hidden), Rotary(sizes.head_dim)
    bias, o_bias = config.bool("attention_bias", default=True), config.bool("attention_out_bias", default=False)
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=o_bias, rotary=rotary)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=replace(attention, dropout=config.float("attention_dropout", default=0.1)),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"), bias=config.bool("mlp_bias", default=False)),
        dropout=config.float("residual_dropout", default=0.1),
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
    )
