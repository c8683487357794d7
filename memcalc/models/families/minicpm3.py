"""MiniCPM 3: latent attention, and MiniCPM's constants on table, branches and the head's input.

Source: transformers, models/minicpm3/modeling_minicpm3.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("minicpm3",)
ARCHITECTURES = {"MiniCPM3ForCausalLM": "minicpm3"}

SCALE_BYTES = 8
"""The table's scale is a buffer of one integer."""


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of latent attention and SwiGLU."""
    sizes = latent.read_sizes(config)
    norm, rotary = RMSNorm(sizes.common.hidden), Rotary(sizes.rope)
    attention = latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False))
    mlp = decoder.gated_mlp(sizes.common, config.str("hidden_act"), bias=config.bool("mlp_bias", default=False))
    layer = DecoderLayer(norm, attention, norm, mlp, scaled=True)
    tied = config.bool("tie_word_embeddings", default=True)
    return text.language_model(
        config,
        sizes.common,
        (Block("layers", layer, sizes.common.num_layers),),
        embedding=Embedding(sizes.common.vocab, sizes.common.hidden, rotary=rotary, scaled=True, tied=tied),
        norm=norm,
        head=Head(Linear("lm_head", sizes.common.hidden, sizes.common.vocab, split="column"), tied=tied, scaled_input=True),
        buffer_bytes=decoder.rotary_buffer_bytes(rotary) + SCALE_BYTES,
    )
