"""ESM-2: a language model of proteins, an encoder with rotary positions; counted, not run.

Source: transformers, models/esm/modeling_esm.py.
"""

from __future__ import annotations

from memcalc.components import Embedding, LayerNorm, Linear, MaskedHead
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _text as text
from memcalc.models.families.distilbert import ID_BYTES
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("esm",)
ARCHITECTURES = {"EsmForMaskedLM": "esm"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers, and a head for contacts beside the other.

    Raises:
        ModelError: it folds proteins, too.
    """
    if config.bool("is_folding_model", default=False):
        raise config.error("is_folding_model true is not known to memcalc: it reads language models of proteins")
    sizes, tied = text.plain_sizes(config), config.bool("tie_word_embeddings", default=True)
    hidden, norm, turns = sizes.hidden, LayerNorm(sizes.hidden), config.str("position_embedding_type", default="absolute") == "rotary"
    attention = Parts(
        (
            ("self", Parts(counted.linears(hidden, hidden, "query", "key", "value", bias=True))),
            ("output", Parts(counted.linears(hidden, hidden, "dense", bias=True))),
            ("LayerNorm", norm),
        )
    )
    up, down = counted.linears(hidden, sizes.intermediate, "dense", bias=True), counted.linears(sizes.intermediate, hidden, "dense", bias=True)
    layer = Parts((("attention", attention), ("intermediate", Parts(up)), ("output", Parts(down)), ("LayerNorm", norm)))
    scores = Axis("num_hidden_layers * num_attention_heads", sizes.num_layers * sizes.num_heads)
    positions = config.int("max_position_embeddings", default=1026)
    return counted.model(
        config,
        sizes,
        (Block("encoder/layer", layer, sizes.num_layers), Block("contact_head", Parts(counted.linears(scores, Axis("1", 1), "regression", bias=True)))),
        what="an encoder with rotary positions",
        norm=norm,
        embedding=Embedding(
            sizes.vocab,
            hidden,
            positions=0 if turns else positions,
            tied=tied,
            norm=norm if config.bool("emb_layer_norm_before", default=False) else None,
            style="roberta",
        ),
        head=MaskedHead(Linear("dense", hidden, hidden, bias=True), norm, Linear("decoder", hidden, sizes.vocab, bias=True, split="column"), tied=tied),
        names=("embeddings/word_embeddings", "encoder/emb_layer_norm_after", "lm_head"),
        buffer_bytes=positions * ID_BYTES,
    )
