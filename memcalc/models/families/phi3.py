"""Phi 3, 3.5 and 4: Llama's layer with fused projections.

Source: transformers, models/phi3/modeling_phi3.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, GatedMLP, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("phi3",)
ARCHITECTURES = {"Phi3ForCausalLM": "phi3"}

LONG = ("longrope", "su", "yarn")
"""Names of the rotary positions that keep a third set of frequencies, for long sequences (modeling_rope_utils.py, longrope_frequency_update)."""


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU without biases; every layer sees the same window."""
    sizes = decoder.read_sizes(config)
    norm = RMSNorm(sizes.hidden)
    rotary = Rotary(text.partial_rotary(config, sizes.head_dim, default=1.0), sliced=True)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=text.fused_attention(
            sizes,
            "qkv_proj",
            "o_proj",
            layout="sliced",
            rotary=rotary,
            window=config.optional_int("sliding_window", default=None),
            dropout=config.float("attention_dropout", default=0.0),
        ),
        post_attention_layernorm=norm,
        mlp=GatedMLP(
            gate=Linear("gate_up_proj", sizes.hidden, Axis("2 * intermediate_size", 2 * sizes.intermediate.size), split="column"),
            up=None,
            down=Linear("down_proj", sizes.intermediate, sizes.hidden, split="row"),
            activation=config.str("hidden_act", default="silu"),
        ),
        dropout=config.float("resid_pdrop", default=0.0),
    )
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    is_long = isinstance(scaling, dict) and scaling.get("rope_type", scaling.get("type")) in LONG
    frequencies = decoder.rotary_buffer_bytes(rotary)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
        buffer_bytes=frequencies * 3 // 2 if is_long else frequencies,
    )
