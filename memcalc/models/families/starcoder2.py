"""StarCoder 2: grouped-query attention and a network of two linear layers, with LayerNorm and biases.

Source: transformers, models/starcoder2/modeling_starcoder2.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, DecoderLayer, Embedding, LayerNorm, Linear, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("starcoder2",)
ARCHITECTURES = {"Starcoder2ForCausalLM": "starcoder2"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers; every layer sees the same window."""
    sizes, bias = decoder.read_sizes(config), config.bool("use_bias", default=True)
    norm, rotary = LayerNorm(sizes.hidden), Rotary(sizes.head_dim)
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary, window=config.optional_int("sliding_window", default=None))
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=replace(attention, dropout=config.float("attention_dropout", default=0.0)),
        post_attention_layernorm=norm,
        mlp=MLP(
            up=Linear("c_fc", sizes.hidden, sizes.intermediate, bias, "column"),
            down=Linear("c_proj", sizes.intermediate, sizes.hidden, bias, "row"),
            activation=config.str("hidden_act", default="gelu_pytorch_tanh"),
        ),
        dropout=config.float("residual_dropout", default=0.0),
    )
    tied, dropout = config.bool("tie_word_embeddings", default=True), config.float("embedding_dropout", default=0.0)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied, dropout=dropout),
        norm=norm,
    )
