"""Hunyuan, dense: Llama's layer with norms of each head's queries and keys after they are turned.

Source: transformers, models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("hunyuan_v1_dense",)
ARCHITECTURES = {"HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    norm, head_norm, rotary = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim)), Rotary(sizes.head_dim)
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm, rotary=rotary)
    mlp = decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"))
    layer = DecoderLayer(norm, replace(attention, norm_after_rotary=True), norm, mlp)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
    )
