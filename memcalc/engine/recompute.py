"""Which layers are checkpointed, and how many of them as one unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from memcalc.specs.model import Block
from memcalc.specs.run import Run


class Unit(NamedTuple):
    """A block as it is run.

    Attributes:
        block: its `repeat` counts units.
        again: only its input is kept, and its forward runs again in backward.
        layers: how many layers of the block one unit holds.
    """

    block: Block
    again: bool
    layers: int = 1


def units_of(run: Run, blocks: tuple[Block, ...]) -> list[Unit]:
    """The units of a model chunk, in the order of the forward pass.

    Full recomputation takes every layer for itself, or as Megatron-core's ``recompute_method`` says (transformer_block.py,
    _checkpointed_forward): ``uniform`` checkpoints every n layers as one, ``block`` the first n layers of the chunk one by one. A uniform unit ends
    where another kind of layer begins. torchtitan's layers are recorded with their checkpoints (`memcalc.code.torchtitan.selection`).
    """
    return list(_units(run, blocks))


def _units(run: Run, blocks: tuple[Block, ...]) -> Iterator[Unit]:
    room, uniform = run.recompute_num_layers or 1, run.recompute_method == "uniform"
    for block in blocks:
        if run.recompute != "full" or run.code == "torchtitan" or block.role not in ("layer", "tower"):
            yield Unit(block, again=False)
        elif run.recompute_method is None:
            yield Unit(block, again=True)
        elif uniform:
            units, rest = divmod(block.repeat, room)
            if units:
                yield Unit(replace(block, repeat=units), again=True, layers=room)
            if rest:
                yield Unit(replace(block, repeat=1), again=True, layers=rest)
        else:
            again = min(room, block.repeat)
            room -= again
            if again:
                yield Unit(replace(block, repeat=again), again=True)
            if block.repeat > again:
                yield Unit(replace(block, repeat=block.repeat - again), again=False)
