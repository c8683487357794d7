"""GPT-NeoX and Pythia: attention and network in parallel, each after its own norm; a quarter of each head turned.

Source: transformers, models/gpt_neox/modeling_gpt_neox.py.
"""

from __future__ import annotations

from memcalc.components import MLP, DecoderLayer, Embedding, LayerNorm, Linear, ParallelLayer, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("gpt_neox",)
ARCHITECTURES = {"GPTNeoXForCausalLM": "gpt_neox"}


def spec(config: Config) -> ModelSpec:
    """Multi-head attention and a network of two linear layers; not in parallel where ``use_parallel_residual`` is false."""
    sizes = text.plain_sizes(config)
    bias, dropout = config.bool("attention_bias", default=True), config.float("hidden_dropout", default=0.0)
    rotary = Rotary(text.partial_rotary(config, sizes.head_dim, default=0.25, key="rotary_pct"), sliced=True)
    attention = text.fused_attention(
        sizes,
        "query_key_value",
        "dense",
        bias=bias,
        o_bias=bias,
        layout="per_head",
        rotary=rotary,
        dropout=config.float("attention_dropout", default=0.0),
    )
    mlp = MLP(
        up=Linear("dense_h_to_4h", sizes.hidden, sizes.intermediate, bias=True, split="column"),
        down=Linear("dense_4h_to_h", sizes.intermediate, sizes.hidden, bias=True, split="row"),
        activation=config.str("hidden_act", default="gelu"),
    )
    norm = LayerNorm(sizes.hidden)
    layer = (
        ParallelLayer(norm, attention, mlp, mlp_layernorm=norm, dropout=dropout)
        if config.bool("use_parallel_residual", default=True)
        else DecoderLayer(norm, attention, norm, mlp, dropout=dropout)
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False), dropout=dropout),
        norm=norm,
        names=("embed_in", "final_layer_norm", "lm_head"),
    )
