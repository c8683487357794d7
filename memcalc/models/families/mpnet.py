"""MPNet: BERT whose layers share a table of distances, added to the scores.

Source: transformers, models/mpnet/modeling_mpnet.py.
"""

from __future__ import annotations

from dataclasses import fields, replace

from memcalc.components import Attention, Embedding, PostNormLayer
from memcalc.components.mpnet import BiasedAttention, DistanceBias
from memcalc.models.config import Config
from memcalc.models.families.bert import encoder
from memcalc.models.families.distilbert import ID_BYTES
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("mpnet",)
ARCHITECTURES = {"MPNetForMaskedLM": "mpnet"}


def spec(config: Config) -> ModelSpec:
    """No token types; its code is eager alone."""
    whole = encoder(config, "embeddings/word_embeddings", "lm_head", style="roberta", reserved_positions=2)
    front, layers, *ends = whole.blocks
    bias = DistanceBias(config.int("relative_attention_num_buckets", default=32), whole.num_heads)
    assert isinstance(front.module, Embedding)
    table = replace(front.module, token_types=0, others=(bias,))
    blocks = (replace(front, module=table), biased(layers), *ends)
    return replace(whole, blocks=blocks, attentions=("eager",), buffer_bytes=config.int("max_position_embeddings") * ID_BYTES)


def biased(layers: Block) -> Block:
    """The same layers, with a bias on their scores."""
    layer = layers.module
    assert isinstance(layer, PostNormLayer)
    assert isinstance(layer.self_attn, Attention)
    attention = BiasedAttention(**{field.name: getattr(layer.self_attn, field.name) for field in fields(layer.self_attn)})
    return replace(layers, module=replace(layer, self_attn=attention))
