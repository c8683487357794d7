"""Vision towers: from pixels to patches, and from patches to tokens of a text. Their layers are those of any transformer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.attention import Attention
from memcalc.components.linear import Linear
from memcalc.components.mlp import MLP, GatedMLP
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight

Norm = LayerNorm | RMSNorm


@dataclass(frozen=True)
class PatchConv(Component):
    """A convolution whose stride is its kernel: each patch becomes one vector.

    Attributes:
        name: the module's name.
        hidden: the width of that vector.
        channels, frames, patch: the kernel: colours, pictures along time (0: no such axis), pixels either way.
        bias: whether it has one.
    """

    name: str
    hidden: Axis
    channels: int
    patch: int
    frames: int = 0
    bias: bool = False

    @property
    def module_name(self) -> str:
        """Its own name."""
        return self.name

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (hidden, channels, [frames,] patch, patch), ``bias`` (hidden,)."""
        frames = (Axis("temporal_patch_size", self.frames),) if self.frames else ()
        side = (Axis("patch_size", self.patch), Axis("patch_size", self.patch))
        yield Weight("weight", (self.hidden, Axis("num_channels", self.channels), *frames, *side))
        if self.bias:
            yield Weight("bias", (self.hidden,))


@dataclass(frozen=True)
class ImageEmbedding(Component):
    """The front of a tower whose images are rows of a batch: patches, a class token, positions (ViT, CLIP, SigLIP).

    Attributes:
        patches: pixels → patches.
        positions: how many have a learned vector.
        position_name: of the table; looked up as an embedding when it ends in ``/weight``, otherwise added whole.
        class_name: of the class token, where there is one.
        leading: axes of one element before the class token and the table (ViT has them (1, 1, hidden) and (1, positions, hidden)).
        norm: on the sum (CLIP).
        norm_name: its module.
        embedding_name: the module that holds all but that norm.
        dropout: on what comes out.
        picked: real images are picked out of padding first, and positions looked up for each of them (Idefics 3).
        outer: the model's forward has a variable for pixels in its own dtype (ViT).
    """

    patches: PatchConv
    positions: int
    position_name: str
    class_name: str = ""
    leading: bool = False
    norm: Norm | None = None
    norm_name: str = "pre_layrnorm"
    embedding_name: str = "embeddings"
    dropout: float = 0.0
    picked: bool = False
    outer: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """The class token (hidden,) and the table (positions, hidden)."""
        one, hidden = (Axis("1", 1),) if self.leading else (), self.patches.hidden
        if self.class_name:
            yield Weight(f"{self.embedding_name}/{self.class_name}", (*one, *one, hidden))
        yield Weight(f"{self.embedding_name}/{self.position_name}", (*one, Axis("positions", self.positions), hidden))

    def children(self) -> Iterator[tuple[str, Component]]:
        """The convolution inside the embedding's module, the norm beside it."""
        yield f"{self.embedding_name}/{self.patches.name}", self.patches
        if self.norm is not None:
            yield self.norm_name, self.norm


@dataclass(frozen=True)
class PackedEmbedding(Component):
    """The front of a tower in which the patches of all images stand in one row: patches, positions drawn from a table for each grid.

    Attributes:
        patches: pixels → patches.
        head_dim: of the angles that all layers share.
        positions: rows of the table of positions, 0 for none (Qwen 2.5).
        position_name: of that table.
        norm: on the patches, before positions are added (GLM).
        norm_name: its module.
        style: whose order of steps.
    """

    patches: PatchConv
    head_dim: int
    positions: int = 0
    position_name: str = "pos_embed/weight"
    norm: Norm | None = None
    norm_name: str = "post_conv_layernorm"
    style: Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v"] = "qwen3_vl"

    def own_weights(self) -> Iterator[Weight]:
        """The table (positions, hidden)."""
        if self.positions:
            yield Weight(self.position_name, (Axis("positions", self.positions), self.patches.hidden))

    def children(self) -> Iterator[tuple[str, Component]]:
        """The convolution in its module, the norm beside it."""
        yield f"patch_embed/{self.patches.name}", self.patches
        if self.norm is not None:
            yield self.norm_name, self.norm


@dataclass(frozen=True)
class PackedAttention(Attention):
    """Attention inside each image (or window) of a row that holds many: split there, one kernel for each, put together again.

    Attributes:
        side: pixels of a window either way, 0 where a whole image attends to itself.
    """

    side: int = 0


@dataclass(frozen=True)
class PatchMerger(Component):
    """Neighbouring patches side by side, through a network of two layers, to the text's width (Qwen).

    Attributes:
        norm: of each patch, or of the neighbours together (`after`).
        mlp: of the neighbours.
        merged: the neighbours' width.
        names: of the norm and of the two linear layers.
        after: the norm is taken of the neighbours together.
        reordered: patches stand by window and are put back into order (Qwen 2.5).
        deep: its output goes to a text layer of its own number, not into the table's rows (Qwen 3).
    """

    norm: Norm
    mlp: MLP
    merged: Axis
    norm_name: str = "norm"
    after: bool = False
    reordered: bool = False
    deep: str = ""

    def children(self) -> Iterator[tuple[str, Component]]:
        """The norm under its own name; the linear layers stand in the merger itself."""
        yield self.norm_name, self.norm
        yield self.mlp.up.name, self.mlp.up
        yield self.mlp.down.name, self.mlp.down


@dataclass(frozen=True)
class ConvMerger(Component):
    """A norm, a convolution over neighbouring patches, a projection with a norm of its own, a gated network (GLM-4.1V).

    Attributes:
        norm: of the tower.
        conv: neighbours → the text's width.
        mlp: a gated network there.
    """

    norm: RMSNorm
    conv: PatchConv
    mlp: GatedMLP

    @property
    def proj(self) -> Linear:
        """The projection before the network."""
        return Linear("proj", self.conv.hidden, self.conv.hidden)

    @property
    def projection_norm(self) -> LayerNorm:
        """Its norm."""
        return LayerNorm(self.conv.hidden)

    def children(self) -> Iterator[tuple[str, Component]]:
        """As they stand in the tower and in its merger."""
        yield "post_layernorm", self.norm
        yield self.conv.name, self.conv
        yield "merger/proj", self.proj
        yield "merger/post_projection_norm", self.projection_norm
        for linear in (self.mlp.gate, self.mlp.up, self.mlp.down):
            if linear is not None:
                yield f"merger/{linear.name}", linear


@dataclass(frozen=True)
class Projector(Component):
    """From the tower's last layer to the text's width, where that is no merger.

    Attributes:
        drop_class: the class token is dropped first.
        held: the tower's output holds the features that the projector reads (LLaVA).
        norm: of the tower, before it.
        norm_name: its module.
        mlp: a network, or
        linear: one layer.
        name: of the projector's module.
    """

    name: str
    mlp: MLP | None = None
    linear: Linear | None = None
    drop_class: bool = False
    held: bool = False

    def children(self) -> Iterator[tuple[str, Component]]:
        """Its linear layers, in its own module."""
        linears = (self.linear,) if self.mlp is None else (self.mlp.up, self.mlp.down)
        yield from ((f"{self.name}/{linear.name}" if self.name else linear.name, linear) for linear in linears if linear is not None)


@dataclass(frozen=True)
class AveragePool(Component):
    """Each square of neighbouring patches averaged, normalised, through one matrix (Gemma 3).

    Attributes:
        norm: of the averages.
        outputs: the text's width.
        side: of a square, in patches.
    """

    norm: RMSNorm
    outputs: Axis
    side: int

    def own_weights(self) -> Iterator[Weight]:
        """``mm_input_projection_weight`` (tower's width, text's width)."""
        yield Weight("mm_input_projection_weight", (self.norm.width, self.outputs))

    def children(self) -> Iterator[tuple[str, Component]]:
        """The norm under its own name."""
        yield "mm_soft_emb_norm", self.norm


@dataclass(frozen=True)
class Unseen(Component):
    """A part of a tower whose output nothing uses: it runs, and no gradient reaches its weights.

    Attributes:
        module: the part.
        first_token: it is given the class token alone, and what comes of that is dropped at once.
    """

    module: Component
    first_token: bool = False

    def weights(self, prefix: str = "") -> Iterator[tuple[str, Weight]]:
        """Those of the part, all without gradient, under its own path."""
        yield from ((path, weight._replace(frozen=True, idle=True)) for path, weight in self.module.weights(prefix))

    def children(self) -> Iterator[tuple[str, Component]]:
        """Those of the part."""
        yield from self.module.children()


@dataclass(frozen=True)
class Join(Component):
    """Tokens of images take the places that the text keeps for them (``masked_scatter``).

    Attributes:
        listed: the tower's tokens come as a list, a tensor for each image, and are put into one row first.
        deep: from so many middle layers of the tower there are tokens, too.
        outer: the embeddings stand in a variable of the outermost forward, beside the loss (Llama 4).
        masks: tokens of an image see each other both ways, so that masks are made with them, for each sequence of the batch: in all
            layers, or in those with windows.
    """

    listed: bool = False
    deep: int = 0
    masks: Literal["", "all", "windows"] = ""
    outer: bool = False


@dataclass(frozen=True)
class Deepstack(Component):
    """Tokens of a middle layer of the tower are added to those of images in the text (Qwen 3-VL).

    Attributes:
        name: which.
    """

    name: str


@dataclass(frozen=True)
class FirstToken(Component):
    """What ends a model of images alone: a linear layer on the class token of each.

    Attributes:
        proj: hidden → the pooler's width, or as many as there are labels.
        activation: of a pooler; none after it, and the loss of each image's label, where there is none.
    """

    proj: Linear
    activation: str = ""


@dataclass(frozen=True)
class Parts(Component):
    """Parts under their names, and weights beside them: counted, with no program that runs them.

    Attributes:
        parts: name and component of each.
        own: the weights beside them.
    """

    parts: tuple[tuple[str, Component], ...] = ()
    own: tuple[Weight, ...] = ()

    def own_weights(self) -> Iterator[Weight]:
        """Those beside the parts."""
        yield from self.own

    def children(self) -> Iterator[tuple[str, Component]]:
        """The parts."""
        yield from self.parts
