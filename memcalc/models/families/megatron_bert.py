"""Megatron-BERT and XLM-RoBERTa-XL: BERT whose norms stand before its branches, and another one at the end.

Source: transformers, models/megatron_bert/modeling_megatron_bert.py, models/xlm_roberta_xl/modeling_xlm_roberta_xl.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, LayerNorm, Linear, MaskedHead
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families.bert import ID_BYTES, encoder_layer
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("megatron-bert", "xlm-roberta-xl")
ARCHITECTURES = {"MegatronBertForMaskedLM": "megatron-bert", "XLMRobertaXLForMaskedLM": "xlm-roberta-xl"}


def spec(config: Config) -> ModelSpec:
    """BERT's attention and network; embeddings are not normalised."""
    sizes = text.plain_sizes(config)
    norm = LayerNorm(sizes.hidden)
    dropout, tied, counts = config.float("hidden_dropout_prob"), config.bool("tie_word_embeddings", default=True), config.model_type == "xlm-roberta-xl"
    post = encoder_layer(config, sizes, dropout)
    layer = DecoderLayer(norm, post.self_attn, norm, post.mlp, dropout=dropout)
    positions, hidden = config.int("max_position_embeddings"), sizes.hidden
    return text.language_model(
        config,
        sizes,
        (Block("encoder/layer", layer, sizes.num_layers),),
        embedding=Embedding(
            sizes.vocab,
            hidden,
            positions=positions,
            reserved_positions=config.int("pad_token_id", default=1, minimum=0) + 1 if counts else 0,
            token_types=config.int("type_vocab_size"),
            tied=tied,
            dropout=dropout,
            style="roberta" if counts else "bert",
        ),
        norm=norm,
        head=MaskedHead(
            dense=Linear("dense", hidden, hidden, bias=True),
            norm=norm,
            proj=Linear("decoder", hidden, sizes.vocab, bias=True, split="column"),
            activation="gelu" if counts else config.str("hidden_act"),
            tied=tied,
        ),
        names=("embeddings/word_embeddings", "encoder/ln", "lm_head" if counts else "cls/predictions"),
        buffer_bytes=positions * (ID_BYTES if counts else ID_BYTES // 2),
    )
