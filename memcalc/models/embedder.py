"""A language model made an embedder: its head gives way to a vector for each text."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components.pooling import Kind, Pooling
from memcalc.errors import InputError
from memcalc.models.untie import untied
from memcalc.specs.model import Block, ModelSpec


def with_pooling(model: ModelSpec, kind: Kind) -> ModelSpec:
    """The model as ``AutoModel`` loads it, without a pooler of its own, and pooling behind it.

    Raises:
        InputError: an encoder with a decoder.
    """
    if sum(block.role == "embedding" for block in model.blocks) != 1:
        raise InputError(f"how {model.model_type} models embed texts is not known", where="contrastive")
    blocks = untied(tuple(block for block in model.blocks if block.role != "head"))
    return replace(model, blocks=(*blocks, Block("pooling", Pooling(kind), role="head")), tied=False)
