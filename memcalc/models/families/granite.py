"""Granite 3, dense: Llama's layer with constants on table, branches, scores and logits.

Source: transformers, models/granite/modeling_granite.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("granite",)
ARCHITECTURES = {"GraniteForCausalLM": "granite"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    norm, rotary = RMSNorm(sizes.hidden), Rotary(sizes.head_dim)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"), bias=config.bool("mlp_bias", default=False)),
        scaled=True,
    )
    tied = config.bool("tie_word_embeddings", default=False)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, scaled=True, tied=tied),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, scaled=True),
    )
