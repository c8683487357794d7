"""What models that hear share: a tower for sounds, which is counted, beside a text model that runs."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Head, LayerNorm
from memcalc.components.sound import SoundParts, WholeHead
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.specs.model import Axis, Block, Component, ModelSpec, Weight

NOT_RUN = "the tower for sounds"

Named = tuple[str, Component]

KERNEL = Axis("kernel", 3)


def with_ears(whole: ModelSpec, *blocks: tuple[str, tuple[Named, ...], int], own: tuple[Weight, ...] = ()) -> ModelSpec:
    """The model with a tower for sounds behind its embedding.

    Args:
        whole: the model without it.
        blocks: path, parts and number of repetitions of each stretch of the tower.
        own: weights beside the parts of the first stretch.
    """
    ends = next(i for i, block in enumerate(whole.blocks) if block.role == "embedding") + 1
    tower = tuple(Block(path, SoundParts(parts, () if i else own), count, role="tower_end") for i, (path, parts, count) in enumerate(blocks) if count)
    found = replace(whole, blocks=(*whole.blocks[:ends], *tower, *whole.blocks[ends:]), untraced=(*whole.untraced, NOT_RUN))
    return found if whole.active_params is None else replace(found, active_params=whole.active_params + found.num_params - whole.num_params)


def conv(name: str, inputs: Axis, outputs: Axis, *, kernel: Axis = KERNEL, bias: bool = True) -> Named:
    """A convolution along time."""
    own = (Weight("weight", (outputs, inputs, kernel)), *((Weight("bias", (outputs,)),) if bias else ()))
    return name, Parts((), own)


def whisper_layer(hidden: Axis, inner: Axis, *, key_bias: bool = False) -> tuple[Named, ...]:
    """A layer of Whisper's encoder, whose keys have no bias."""
    norm, keys = LayerNorm(hidden), counted.linears(hidden, hidden, "k_proj", bias=key_bias)
    attention = Parts((*keys, *counted.linears(hidden, hidden, "v_proj", "q_proj", "out_proj", bias=True)))
    network = (*counted.linears(hidden, inner, "fc1", bias=True), *counted.linears(inner, hidden, "fc2", bias=True))
    return (("self_attn", attention), ("self_attn_layer_norm", norm), *network, ("final_layer_norm", norm))


def whisper_front(part: Config, hidden: Axis) -> tuple[Named, ...]:
    """Two convolutions over bands of frequencies."""
    return conv("conv1", Axis("num_mel_bins", part.int("num_mel_bins")), hidden), conv("conv2", hidden, hidden)


def places(part: Config, hidden: Axis, *, dtype: str | None = None) -> Weight:
    """Positions that are given, and take no gradient."""
    return Weight("embed_positions/weight", (Axis("max_source_positions", part.int("max_source_positions")), hidden), dtype=dtype, frozen=True)


def with_head(text: ModelSpec, kind: type[WholeHead]) -> ModelSpec:
    """The text model with such a head in the place of its own."""
    *before, last = text.blocks
    old = last.module
    assert isinstance(old, Head)
    return replace(text, blocks=(*before, replace(last, module=kind(old.proj, tied=old.tied))))
