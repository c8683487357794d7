"""BLOOM: ALiBi positions, one fused projection, norms on the table and in the layers.

Source: transformers, models/bloom/modeling_bloom.py.
"""

from __future__ import annotations

from memcalc.components import MLP, Alibi, BloomAttention, DecoderLayer, Embedding, LayerNorm, Linear
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("bloom",)
ARCHITECTURES = {"BloomForCausalLM": "bloom"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of multi-head attention and a network of two linear layers, four times as wide.

    Raises:
        ModelError: the products are cut into slices.
    """
    if config.bool("slow_but_exact", default=False) and config.int("pretraining_tp", default=1) > 1:
        raise config.error("slow_but_exact true is not known to memcalc")
    hidden, heads = config.int("hidden_size", "n_embed"), config.int("n_head", "num_attention_heads")
    sizes = text.axes(
        hidden=hidden,
        intermediate=4 * hidden,
        vocab=config.int("vocab_size"),
        layers=config.int("n_layer", "num_hidden_layers"),
        heads=heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )
    norm, width = LayerNorm(sizes.hidden), sizes.hidden
    attention = BloomAttention(
        heads,
        heads,
        sizes.head_dim,
        Linear("query_key_value", width, Axis("3 * hidden_size", 3 * hidden), bias=True, split="column"),
        None,
        None,
        Linear("dense", width, width, bias=True, split="row"),
        layout="indexed",
        dropout=config.float("attention_dropout", default=0.0),
    )
    mlp = MLP(
        up=Linear("dense_h_to_4h", width, sizes.intermediate, bias=True, split="column"),
        down=Linear("dense_4h_to_h", sizes.intermediate, width, bias=True, split="row"),
        activation="bloom_gelu",
    )
    layer = DecoderLayer(
        norm,
        attention,
        norm,
        mlp,
        dropout=config.float("hidden_dropout", default=0.0),
        residual_from_norm=config.bool("apply_residual_connection_post_layernorm", default=False),
        returns_probabilities=True,
    )
    tied = config.bool("tie_word_embeddings", default=True)
    return text.language_model(
        config,
        sizes,
        (Block("h", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, width, tied=tied, norm=norm, alibi=Alibi(heads, "bias"), style="bloom"),
        norm=norm,
        names=("word_embeddings", "ln_f", "lm_head"),
        attentions=text.EAGER_ONLY,
        max_positions=("seq_length",),
    )
