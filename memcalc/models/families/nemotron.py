"""Nemotron 4, Minitron: LayerNorm that multiplies by 1 + weight, squared ReLU, half of each head turned.

Source: transformers, models/nemotron/modeling_nemotron.py.
"""

from __future__ import annotations

from memcalc.components import MLP, DecoderLayer, Embedding, LayerNorm, Linear, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("nemotron",)
ARCHITECTURES = {"NemotronForCausalLM": "nemotron"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and a network of two linear layers."""
    sizes = decoder.read_sizes(config)
    bias, mlp_bias = config.bool("attention_bias", default=False), config.bool("mlp_bias", default=False)
    rotary, norm = Rotary(text.partial_rotary(config, sizes.head_dim, default=0.5), sliced=True), LayerNorm(sizes.hidden, style="one_plus")
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary),
        post_attention_layernorm=norm,
        mlp=MLP(
            up=Linear("up_proj", sizes.hidden, sizes.intermediate, mlp_bias, "column"),
            down=Linear("down_proj", sizes.intermediate, sizes.hidden, mlp_bias, "row"),
            activation=config.str("hidden_act", default="relu2"),
        ),
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
    )
