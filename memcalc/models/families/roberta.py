"""RoBERTa, XLM-RoBERTa, CamemBERT, data2vec: BERT with positions counted from the padding index.

Source: transformers, models/roberta/modeling_roberta.py.
"""

from __future__ import annotations

from memcalc.models.config import Config
from memcalc.models.families.bert import encoder
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("roberta", "xlm-roberta", "camembert", "data2vec-text")
ARCHITECTURES = {
    "RobertaForMaskedLM": "roberta",
    "XLMRobertaForMaskedLM": "xlm-roberta",
    "CamembertForMaskedLM": "camembert",
    "Data2VecTextForMaskedLM": "data2vec-text",
}


def spec(config: Config) -> ModelSpec:
    """BERT's encoder; the first token stands after the padding index."""
    return encoder(config, "embeddings/word_embeddings", "lm_head", style="roberta", reserved_positions=config.int("pad_token_id", default=1, minimum=0) + 1)
