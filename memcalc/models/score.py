"""A language model made a judge: its projection to the vocabulary gives way to one number."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components.linear import Linear
from memcalc.components.score import ScoreHead
from memcalc.errors import InputError
from memcalc.models.untie import untied
from memcalc.specs.model import Axis, Block, ModelSpec


def with_score(model: ModelSpec, *, where: str) -> ModelSpec:
    """The model with a score in the place of its head (``AutoModelForSequenceClassification`` with one label).

    Raises:
        InputError: it has no head to replace.
    """
    heads = [block for block in model.blocks if block.role == "head"]
    proj = getattr(heads[-1].module, "proj", None) if heads else None
    if not isinstance(proj, Linear):
        raise InputError(f"{model.model_type} models have no head that a score could take the place of", where=where)
    score = Block("score", ScoreHead(Linear("score", proj.inputs, Axis("labels", 1))), role="head")
    blocks = (*(block for block in model.blocks if block.role != "head"), score)
    return replace(model, blocks=untied(blocks), tied=False)
