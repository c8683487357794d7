"""OLMo: Llama's layer with LayerNorm that has no weights.

Source: transformers, models/olmo/modeling_olmo.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, LayerNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("olmo",)
ARCHITECTURES = {"OlmoForCausalLM": "olmo"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU; positions are turned in fp32."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    norm, rotary = LayerNorm(sizes.hidden, bias=False, style="upcast"), Rotary(sizes.head_dim, precision="angles")
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary)
    attention = replace(attention, clamped=config.optional_float("clip_qkv", default=None) is not None)
    layer = DecoderLayer(norm, attention, norm, decoder.gated_mlp(sizes, config.str("hidden_act", default="silu")))
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
    )
