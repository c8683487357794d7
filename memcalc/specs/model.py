"""ModelSpec: what a model is made of. Components say their weights; how they run is another matter (`memcalc.code`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from memcalc.dataclass import dataclass
from memcalc.tape.tensor import Axis, Shape, numel
from memcalc.units import ceil_div

if TYPE_CHECKING:
    from memcalc.specs.quantization import Quantization
    from memcalc.specs.vision import Vision

Cut = Literal["column", "row", "vocab", "expert", "expert_column", "expert_row"]
"""How parallelism cuts an axis of a weight: tensor parallelism its outputs, inputs or vocabulary rows; expert parallelism whole
experts; expert-tensor parallelism outputs or inputs inside each expert."""


class Degrees(NamedTuple):
    """Into how many parts each kind of cut divides (ints or integer arrays)."""

    column: Any = 1
    row: Any = 1
    vocab: Any = 1
    expert: Any = 1
    expert_column: Any = 1
    expert_row: Any = 1


class Weight(NamedTuple):
    """One parameter of a component.

    Attributes:
        name: as in the state dict, below the component (``weight``, ``bias``).
        shape: named axes, whole (not cut).
        cuts: pairs of a kind of cut and the index of the axis that it divides; none: replicated.
        dtype: held in this dtype whatever the model's is (routers in fp32); None: in the model's.
        frozen: no gradient ever reaches it (a constant kept as a parameter, a branch that runs under ``no_grad``).
        idle: that is so although it would take one (``requires_grad``): it runs, and nothing uses what comes out.
    """

    name: str
    shape: Shape
    cuts: tuple[tuple[Cut, int], ...] = ()
    dtype: str | None = None
    frozen: bool = False
    idle: bool = False

    @property
    def num_params(self) -> int:
        """Elements of the whole weight."""
        return int(numel(self.shape))

    @property
    def is_expert(self) -> bool:
        """Whether it belongs to routed experts, which are spread over expert-parallel ranks."""
        return any(kind.startswith("expert") for kind, _ in self.cuts)

    def local(self, degrees: Degrees) -> Shape:
        """The shape of one rank's part."""
        axes = list(self.shape)
        for kind, i in self.cuts:
            axes[i] = shard(axes[i], getattr(degrees, kind))
        return tuple(axes)


def shard(axis: Axis, degree: Any) -> Axis:
    """An axis cut into equal parts (the first part where they are not equal), and named so.

    >>> shard(Axis("heads", 32), 4)
    Axis(name='heads/4', size=8)
    """
    if isinstance(degree, int) and degree == 1:
        return axis
    return Axis(f"{axis.name}/{degree}" if isinstance(degree, int) else axis.name, ceil_div(axis.size, degree))


@dataclass(frozen=True)
class Component:
    """A part of a model. Its fields that are components (or tuples of them) are its children, under the field's name."""

    def own_weights(self) -> Iterator[Weight]:
        """The parameters that belong to this component itself."""
        return iter(())

    def children(self) -> Iterator[tuple[str, Component]]:
        """Name and component of each child, in the order of the fields."""
        return iter(self._children)

    @cached_property
    def _children(self) -> tuple[tuple[str, Component], ...]:
        found: list[tuple[str, Component]] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Component):
                found.append((value.module_name or field.name, value))
            elif isinstance(value, tuple):
                found += [(item.module_name or f"{field.name}/{i}", item) for i, item in enumerate(value) if isinstance(item, Component)]
        return tuple(found)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Sequence lengths from which on its code makes other tensors than below: those of one chunk, or of more."""
        return ()

    @property
    def needs_images(self) -> bool:
        """The model's code passes it by where there are none."""
        return False

    @property
    def needs_sounds(self) -> bool:
        """The model's code passes it by where there is nothing to hear, and batches have no sounds here."""
        return False

    @property
    def module_name(self) -> str:
        """The name this component has in the model's own code, where that is not the name of the field that holds it."""
        return ""

    def weights(self, prefix: str = "") -> Iterator[tuple[str, Weight]]:
        """Slash path and weight of everything below, this component's own first."""
        for weight in self.own_weights():
            yield f"{prefix}{weight.name}", weight
        for name, child in self.children():
            yield from child.weights(f"{prefix}{name}/")

    @property
    def num_params(self) -> int:
        """Elements of all weights below."""
        return sum(w.num_params for _, w in self.weights())


@dataclass(frozen=True)
class Block:
    """A stretch of the model that runs as one: the embedding, one layer, the final norm, the head.

    Attributes:
        path: its place in the model (``embed_tokens``, ``layers``, ``norm``, ``lm_head``).
        module: what it is.
        repeat: how many equal ones follow each other.
        role: what the schedule does with it; layers are what pipelines cut and checkpoints wrap. A ``tower`` layer and what stands at
            the ends of the tower run on images, beside the text; ``join`` puts what comes out among the text's embeddings.
    """

    path: str
    module: Component
    repeat: int = 1
    role: Literal["embedding", "layer", "norm", "head", "tower", "tower_end", "join"] = "layer"

    @property
    def num_params(self) -> int:
        """Elements of all its weights, repetitions included."""
        return self.module.num_params * self.repeat

    @property
    def sees_images(self) -> bool:
        """It belongs to a vision tower."""
        return self.role in ("tower", "tower_end")


@dataclass(frozen=True)
class ModelSpec:
    """A model as memcalc sees it: its blocks in the order in which they run, and the few facts that others ask for.

    Attributes:
        name: what the user called it.
        model_type: Hugging Face's.
        text_type: that of its text model, where a tower stands beside it.
        blocks: in the order of the forward pass.
        hidden_size, vocab_size, num_layers, num_heads, num_kv_heads, head_dim: of the text model; 0 where it has none.
        max_position_embeddings: the length the model is made for, if it says.
        tied: the head uses the embedding's table.
        buffer_bytes: persistent and other buffers that live on the card beside the parameters.
        attentions: the implementations of attention that its code has; where the one asked for is not among them, eager code runs.
        untraced: what of this model memcalc counts but cannot run (empty when all of it runs).
        assumed: what its config.json leaves out and was taken from elsewhere, in words.
        presumed: what a run of it takes for granted, in words (how tokens fall on experts, where that matters).
        vision: the sizes of images, where it sees any.
        dtype: what its checkpoint is stored in, if its file says.
        quantization: how its checkpoint's weights are quantised, if they are.
    """

    name: str
    model_type: str
    blocks: tuple[Block, ...]
    hidden_size: int = 0
    vocab_size: int = 0
    num_layers: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    max_position_embeddings: int | None = None
    tied: bool = False
    buffer_bytes: int = 0
    active_params: int | None = None
    attentions: tuple[str, ...] = ("eager", "sdpa", "flash_attention_2")
    untraced: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    presumed: tuple[str, ...] = ()
    vision: Vision | None = None
    dtype: str | None = None
    quantization: Quantization | None = None
    text_type: str = ""

    def weights(self) -> Iterator[tuple[str, Weight, int]]:
        """Path, weight and number of copies of every parameter; a tied head has none of its own."""
        for block in self.blocks:
            for path, weight in block.module.weights(f"{block.path}/"):
                yield path, weight, block.repeat

    @property
    def num_params(self) -> int:
        """What summing ``numel`` over the model's parameters gives; a tied table once."""
        return sum(block.num_params for block in self.blocks)

    def renamed(self, name: str) -> ModelSpec:
        """The same model under another name."""
        return replace(self, name=name)


__all__ = ["Axis", "Block", "Component", "Cut", "Degrees", "ModelSpec", "Weight", "shard"]
