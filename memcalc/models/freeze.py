"""A model of which only the last layers are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memcalc.errors import InputError
from memcalc.specs.model import Block, ModelSpec

FROZEN = "frozen "
"""What stands before the path of a block that takes no gradient."""


def freeze(model: ModelSpec, num_trained: int) -> ModelSpec:
    """The same model with everything but its last layers under another path, by which `is_trained` tells them apart.

    Raises:
        InputError: it has fewer layers.
    """
    num_layers = sum(block.repeat for block in model.blocks if block.role == "layer")
    if num_trained > num_layers:
        raise InputError(f"{model.name} has {num_layers} layers, not {num_trained}", where="trainable_layers")
    return replace(model, blocks=tuple(_split(model, num_layers - num_trained)))


def _split(model: ModelSpec, num_frozen: int) -> Iterator[Block]:
    for block in model.blocks:
        if block.role != "layer":
            yield _named(block)
            continue
        frozen = min(num_frozen, block.repeat)
        num_frozen -= frozen
        if frozen:
            yield _named(replace(block, repeat=frozen))
        if frozen < block.repeat:
            yield replace(block, repeat=block.repeat - frozen)


def _named(block: Block) -> Block:
    return replace(block, path=f"{FROZEN}{block.path}")


def is_trained(path: str) -> bool:
    """Whether a weight's path is that of a layer that takes a gradient."""
    return not path.startswith(FROZEN)
