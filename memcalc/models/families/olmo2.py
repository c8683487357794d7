"""OLMo 2: norms after the branches only, and over all queries and all keys.

Source: transformers, models/olmo2/modeling_olmo2.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("olmo2",)
ARCHITECTURES = {"Olmo2ForCausalLM": "olmo2"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and SwiGLU; positions are turned in fp32."""
    sizes, rotary = decoder.read_sizes(config), Rotary(decoder.read_sizes(config).head_dim, precision="angles")
    layer = olmo_layer(config, sizes, rotary, window=None)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=RMSNorm(sizes.hidden, "fp32_scale"),
    )


def olmo_layer(config: Config, sizes: decoder.Sizes, rotary: Rotary, *, window: int | None) -> DecoderLayer:
    """One layer of OLMo 2 or 3."""
    norm, bias = RMSNorm(sizes.hidden, "fp32_scale"), config.bool("attention_bias", default=False)
    q_norm, k_norm = RMSNorm(sizes.queries, "fp32_scale"), RMSNorm(sizes.keys, "fp32_scale")
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=q_norm, k_norm=k_norm, rotary=rotary, window=window)
    return DecoderLayer(None, attention, None, decoder.gated_mlp(sizes, config.str("hidden_act", default="silu")), post_mixer_norm=norm, post_mlp_norm=norm)
