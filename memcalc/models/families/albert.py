"""ALBERT (Lan et al. 2019): one layer's weights for all layers, behind a narrow table; counted, not run.

Source: transformers, models/albert/modeling_albert.py.
"""

from __future__ import annotations

from memcalc.components import Embedding, LayerNorm, Linear, MaskedHead
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _text as text
from memcalc.models.families.bert import ID_BYTES
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("albert",)
ARCHITECTURES = {"AlbertForMaskedLM": "albert"}


def spec(config: Config) -> ModelSpec:
    """``num_hidden_groups`` groups of ``inner_group_num`` layers, each of which runs several times."""
    sizes, width = text.plain_sizes(config), Axis("embedding_size", config.int("embedding_size", default=128))
    hidden, norm, narrow = sizes.hidden, LayerNorm(sizes.hidden), LayerNorm(width)
    attention = Parts((*counted.linears(hidden, hidden, "query", "key", "value", "dense", bias=True), ("LayerNorm", norm)))
    network = (*counted.linears(hidden, sizes.intermediate, "ffn", bias=True), *counted.linears(sizes.intermediate, hidden, "ffn_output", bias=True))
    layer = Parts((("full_layer_layer_norm", norm), ("attention", attention), *network))
    groups = config.int("num_hidden_groups", default=1) * config.int("inner_group_num", default=1)
    tied, positions = config.bool("tie_word_embeddings", default=True), config.int("max_position_embeddings", default=512)
    return counted.model(
        config,
        sizes,
        (
            Block("encoder", Parts(counted.linears(width, hidden, "embedding_hidden_mapping_in", bias=True)), role="norm"),
            Block("encoder/albert_layers", layer, groups),
        ),
        what="layers that share their weights",
        norm=None,
        embedding=Embedding(
            sizes.vocab, width, positions=positions, token_types=config.int("type_vocab_size", default=2), tied=tied, norm=narrow, style="bert"
        ),
        head=MaskedHead(Linear("dense", hidden, width, bias=True), narrow, Linear("decoder", width, sizes.vocab, bias=True, split="column"), tied=tied),
        names=("embeddings/word_embeddings", "", "predictions"),
        buffer_bytes=positions * ID_BYTES,
    )
