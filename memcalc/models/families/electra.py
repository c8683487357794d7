"""ELECTRA's generator: BERT with narrower tables.

Source: transformers, models/electra/modeling_electra.py (ElectraForMaskedLM).
"""

from __future__ import annotations

from memcalc.models.config import Config
from memcalc.models.families.bert import encoder
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("electra",)
ARCHITECTURES = {"ElectraForMaskedLM": "electra"}


def spec(config: Config) -> ModelSpec:
    """BERT's encoder between projections from and to the width of the tables."""
    width = config.int("embedding_size", default=128)
    axis = None if width == config.int("hidden_size") else Axis("embedding_size", width)
    return encoder(config, "embeddings/word_embeddings", "generator_lm_head", width=axis)
