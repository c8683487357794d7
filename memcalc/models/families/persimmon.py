"""Persimmon: one fused projection, norms of each head's queries and keys, half of each head turned, squared ReLU.

Source: transformers, models/persimmon/modeling_persimmon.py.
"""

from __future__ import annotations

from memcalc.components import MLP, DecoderLayer, Embedding, LayerNorm, Linear, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("persimmon",)
ARCHITECTURES = {"PersimmonForCausalLM": "persimmon"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of multi-head attention and a network of two linear layers."""
    sizes = text.plain_sizes(config)
    rotary = Rotary(text.partial_rotary(config, sizes.head_dim, default=0.5), sliced=True, inlined=True)
    head_norm = LayerNorm(Axis("head_dim", sizes.head_dim)) if config.bool("qk_layernorm", default=True) else None
    norm = LayerNorm(sizes.hidden)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=text.fused_attention(
            sizes,
            "query_key_value",
            "dense",
            bias=True,
            o_bias=True,
            layout="indexed",
            q_norm=head_norm,
            k_norm=head_norm,
            rotary=rotary,
            dropout=config.float("attention_dropout", default=0.0),
        ),
        post_attention_layernorm=norm,
        mlp=MLP(
            up=Linear("dense_h_to_4h", sizes.hidden, sizes.intermediate, bias=True, split="column"),
            down=Linear("dense_4h_to_h", sizes.intermediate, sizes.hidden, bias=True, split="row"),
            activation=config.str("hidden_act", default="relu2"),
        ),
        dropout=config.float("hidden_dropout", default=0.0),
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
        names=("embed_tokens", "final_layernorm", "lm_head"),
    )
