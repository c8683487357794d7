"""ERNIE 4.5, dense: Llama's layer, turned in neighbouring pairs and in fp32.

Source: transformers, models/ernie4_5/modeling_ernie4_5.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("ernie4_5",)
ARCHITECTURES = {"Ernie4_5ForCausalLM": "ernie4_5"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU, with biases everywhere or nowhere."""
    sizes, bias = decoder.read_sizes(config, head_dim_follows=False), config.bool("use_bias", default=False)
    norm, rotary = RMSNorm(sizes.hidden), Rotary(sizes.head_dim, style="repeated", precision="products")
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"), bias=bias),
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=True)),
        norm=norm,
    )
