"""EuroBERT: Llama's layer, all of whose tokens see each other.

Source: transformers, models/eurobert/modeling_eurobert.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, Linear, MaskedHead, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("eurobert",)
ARCHITECTURES = {"EuroBertForMaskedLM": "eurobert"}


def spec(config: Config) -> ModelSpec:
    """The head has a bias where the network of a layer has some."""
    sizes = decoder.read_sizes(config)
    norm, bias, mlp_bias = RMSNorm(sizes.hidden), config.bool("attention_bias", default=False), config.bool("mlp_bias", default=False)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=replace(decoder.attention(sizes, qkv_bias=bias, o_bias=bias), causal=False),
        post_attention_layernorm=norm,
        mlp=decoder.gated_mlp(sizes, config.str("hidden_act"), bias=mlp_bias),
    )
    tied = config.bool("tie_word_embeddings")
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=Rotary(sizes.head_dim), tied=tied),
        norm=norm,
        head=MaskedHead(None, None, Linear("lm_head", sizes.hidden, sizes.vocab, mlp_bias, "column"), tied=tied, upcast=True),
    )
