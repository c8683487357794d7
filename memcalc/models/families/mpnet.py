"""MPNet: BERT whose layers share a table of distances, added to the scores; counted, not run.

Source: transformers, models/mpnet/modeling_mpnet.py.
"""

from __future__ import annotations

from memcalc.components import Embedding, LayerNorm, Linear, MaskedHead
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families.bert import encoder_sizes
from memcalc.models.families.distilbert import ID_BYTES
from memcalc.specs.model import Axis, Block, ModelSpec, Weight

MODEL_TYPES = ("mpnet",)
ARCHITECTURES = {"MPNetForMaskedLM": "mpnet"}


def spec(config: Config) -> ModelSpec:
    """No token types."""
    sizes, tied = encoder_sizes(config), config.bool("tie_word_embeddings", default=True)
    hidden, norm, positions = sizes.hidden, LayerNorm(sizes.hidden), config.int("max_position_embeddings")
    attention = Parts((("attn", Parts(counted.linears(hidden, hidden, "q", "k", "v", "o", bias=True))), ("LayerNorm", norm)))
    after = Parts((*counted.linears(sizes.intermediate, hidden, "dense", bias=True), ("LayerNorm", norm)))
    layer = Parts((("attention", attention), ("intermediate", Parts(counted.linears(hidden, sizes.intermediate, "dense", bias=True))), ("output", after)))
    buckets = Axis("relative_attention_num_buckets", config.int("relative_attention_num_buckets", default=32))
    table = Weight("relative_attention_bias/weight", (buckets, Axis("num_attention_heads", sizes.num_heads)))
    return counted.model(
        config,
        sizes,
        (Block("encoder/layer", layer, sizes.num_layers), Block("encoder", Parts((), (table,)))),
        what="a bias for distances",
        norm=None,
        embedding=Embedding(sizes.vocab, hidden, positions=positions, reserved_positions=2, tied=tied, norm=norm, style="roberta"),
        head=MaskedHead(Linear("dense", hidden, hidden, bias=True), norm, Linear("decoder", hidden, sizes.vocab, bias=True, split="column"), tied=tied),
        names=("embeddings/word_embeddings", "", "lm_head"),
        buffer_bytes=positions * ID_BYTES,
    )
