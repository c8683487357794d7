"""DistilBERT: half of BERT's layers, without token types.

Source: transformers, models/distilbert/modeling_distilbert.py.
"""

from __future__ import annotations

from memcalc.components import MLP, Attention, Embedding, LayerNorm, Linear, MaskedHead, PostNormLayer
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("distilbert",)
ARCHITECTURES = {"DistilBertForMaskedLM": "distilbert"}

ID_BYTES = 8
"""A position id for each position is a buffer (Embeddings.__init__)."""


def spec(config: Config) -> ModelSpec:
    """Multi-head attention of all tokens to all, and a network of two linear layers.

    Raises:
        ModelError: its positions do not learn.
    """
    if config.bool("sinusoidal_pos_embds", default=False):
        raise config.error("sinusoidal_pos_embds true is not known to memcalc")
    width, heads = config.int("dim", "hidden_size"), config.int("n_heads", "num_attention_heads")
    sizes = text.axes(
        hidden=width,
        intermediate=config.int("hidden_dim"),
        vocab=config.int("vocab_size"),
        layers=config.int("n_layers", "num_hidden_layers"),
        heads=heads,
        head_dim=text.whole_heads(config, width, heads),
    )
    hidden, norm, dropout = sizes.hidden, LayerNorm(sizes.hidden), config.float("dropout", default=0.1)
    q, k, v = (Linear(name, hidden, hidden, bias=True, split="column") for name in ("q_lin", "k_lin", "v_lin"))
    attention = Attention(
        heads,
        heads,
        sizes.head_dim,
        q,
        k,
        v,
        Linear("out_lin", hidden, hidden, bias=True, split="row"),
        causal=False,
        softmax="model",
        dropout=config.float("attention_dropout", default=0.1),
    )
    mlp = MLP(
        up=Linear("lin1", hidden, sizes.intermediate, bias=True, split="column"),
        down=Linear("lin2", sizes.intermediate, hidden, bias=True, split="row"),
        activation=config.str("activation", default="gelu"),
    )
    tied, positions = config.bool("tie_word_embeddings", default=True), config.int("max_position_embeddings", default=512)
    return text.language_model(
        config,
        sizes,
        (Block("transformer/layer", PostNormLayer(attention, norm, mlp, norm, dropout=dropout), sizes.num_layers),),
        embedding=Embedding(sizes.vocab, hidden, positions=positions, tied=tied, norm=norm, dropout=dropout, style="bert"),
        norm=None,
        head=MaskedHead(
            dense=Linear("vocab_transform", hidden, hidden, bias=True),
            norm=norm,
            proj=Linear("vocab_projector", hidden, sizes.vocab, bias=True, split="column"),
            activation=config.str("activation", default="gelu"),
            tied=tied,
        ),
        names=("embeddings/word_embeddings", "", "vocab"),
        buffer_bytes=positions * ID_BYTES,
    )
