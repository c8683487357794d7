"""A model whose head does not use the embedding's table after all, but has one of its own."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, Head
from memcalc.components.bart import BartEmbedding
from memcalc.components.mtp import MultiTokenHead
from memcalc.components.t5 import T5Embedding
from memcalc.specs.model import Block, Component, ModelSpec


def untie(model: ModelSpec) -> ModelSpec:
    """The same model with a table at either end."""
    return replace(model, tied=False, blocks=untied(model.blocks))


def untied(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Both ends with a table of their own: where they stand on different ranks each holds its copy."""
    return tuple(replace(b, module=_alone(b.module)) if b.role in ("embedding", "head") else b for b in blocks)


def _alone(module: Component) -> Component:
    if isinstance(module, (Embedding, Head)):
        return replace(module, tied=False) if module.tied else module
    if isinstance(module, (T5Embedding, BartEmbedding)):
        return replace(module, first=module.stack == "decoder")
    return replace(module, has_table=True) if isinstance(module, MultiTokenHead) else module
