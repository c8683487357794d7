"""Gemma: Llama's layer with norms that multiply by 1 + weight, and a scaled table that the head shares.

Source: transformers, models/gemma/modeling_gemma.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("gemma",)
ARCHITECTURES = {"GemmaForCausalLM": "gemma"}

SCALE_BYTES = 2
"""The table's scale is a buffer of one number in the model's dtype (GemmaTextScaledWordEmbedding)."""


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of multi- or grouped-query attention and GeGLU."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm, bias = RMSNorm(sizes.hidden, "gemma"), config.bool("attention_bias", default=False)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act", default="gelu_pytorch_tanh")),
    )
    rotary = Rotary(sizes.head_dim)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, scaled=True, tied=config.bool("tie_word_embeddings", default=True)),
        norm=norm,
        buffer_bytes=decoder.rotary_buffer_bytes(rotary) + SCALE_BYTES,
    )
