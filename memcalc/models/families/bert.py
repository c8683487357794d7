"""BERT: an encoder that normalises after each branch, and the head that fills in masked tokens.

Source: transformers, models/bert/modeling_bert.py.
"""

from __future__ import annotations

from typing import Literal

from memcalc.components import MLP, Attention, Embedding, LayerNorm, Linear, MaskedHead, PostNormLayer
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families._decoder import Sizes
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("bert",)
ARCHITECTURES = {"BertForMaskedLM": "bert"}

ID_BYTES = 16
"""A position id and a token type for each position are buffers (BertEmbeddings.__init__)."""


def spec(config: Config) -> ModelSpec:
    """Multi-head attention of all tokens to all, and a network of two linear layers."""
    return encoder(config, "embeddings/word_embeddings", "cls/predictions")


def encoder(
    config: Config, embeddings: str, head: str, *, style: Literal["bert", "roberta"] = "bert", reserved_positions: int = 0, width: Axis | None = None
) -> ModelSpec:
    """BERT and what descends from it.

    Args:
        config: the file.
        embeddings, head: where table and head stand in the model's code.
        style: of the embedding.
        reserved_positions: first rows of the position table that stand for no token.
        width: of the tables, where it is not the hidden size.

    Raises:
        ModelError: the file describes a decoder.
    """
    for key in ("is_decoder", "add_cross_attention"):
        if config.bool(key, default=False):
            raise config.error(f"{key} true is not known to memcalc: it reads encoders of this family")
    sizes = text.plain_sizes(config)
    width = width or sizes.hidden
    dropout, tied = config.float("hidden_dropout_prob", default=0.1), config.bool("tie_word_embeddings", default=True)
    positions = config.int("max_position_embeddings")
    return text.language_model(
        config,
        sizes,
        (Block("encoder/layer", encoder_layer(config, sizes, dropout), sizes.num_layers),),
        embedding=Embedding(
            sizes.vocab,
            width,
            positions=positions,
            reserved_positions=reserved_positions,
            token_types=config.int("type_vocab_size", default=2),
            tied=tied,
            norm=LayerNorm(width),
            dropout=dropout,
            project=None if width == sizes.hidden else Linear("embeddings_project", width, sizes.hidden, bias=True),
            style=style,
        ),
        norm=None,
        head=MaskedHead(
            dense=Linear("dense", sizes.hidden, width, bias=True),
            norm=LayerNorm(width),
            proj=Linear("decoder", width, sizes.vocab, bias=True, split="column"),
            activation=config.str("hidden_act", default="gelu") if config.model_type == "bert" else "gelu",
            tied=tied,
            loose_bias=config.model_type != "electra" and not tied,
        ),
        names=(embeddings, "", head),
        buffer_bytes=positions * ID_BYTES,
    )


def encoder_layer(config: Config, sizes: Sizes, dropout: float) -> PostNormLayer:
    """One layer of BERT."""
    hidden, norm = sizes.hidden, LayerNorm(sizes.hidden)
    q, k, v = (Linear(name, hidden, hidden, bias=True, split="column") for name in ("query", "key", "value"))
    o = Linear("dense", hidden, hidden, bias=True, split="row")
    attention = Attention(
        sizes.num_heads,
        sizes.num_heads,
        sizes.head_dim,
        q,
        k,
        v,
        o,
        causal=False,
        softmax="model",
        dropout=config.float("attention_probs_dropout_prob", default=0.1),
    )
    mlp = MLP(
        up=Linear("intermediate.dense", hidden, sizes.intermediate, bias=True, split="column"),
        down=Linear("output.dense", sizes.intermediate, hidden, bias=True, split="row"),
        activation=config.str("hidden_act", default="gelu"),
    )
    return PostNormLayer(attention, norm, mlp, norm, dropout=dropout, holds_inner=True)
