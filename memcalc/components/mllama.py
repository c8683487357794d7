"""Llama 3.2 Vision: a tower over the tiles of an image, and layers of cross-attention to what it gives."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.components.layer import DecoderLayer
from memcalc.components.linear import Linear
from memcalc.components.mlp import GatedMLP
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.components.vision import PatchConv
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight

ONE = Axis("1", 1)


@dataclass(frozen=True)
class Tiles(Component):
    """Learned positions of the tiles that an image is cut into, behind a gate.

    Attributes:
        kinds: rows of the table: ways to cut an image, and none.
        tiles: of an image.
        hidden: the tower's width.
        positions: of each tile that have a vector of their own; 0: the tile has one for all.
        name: the table's, below this module.
    """

    kinds: Axis
    tiles: int
    hidden: Axis
    positions: int = 0
    name: str = "embedding"

    @property
    def gate(self) -> Weight:
        """A number."""
        return Weight("gate", (ONE,))

    @property
    def table(self) -> Weight:
        """A row for each way to cut an image."""
        row = Axis("max_num_tiles * hidden_size", self.tiles * self.hidden.size * (self.positions or 1))
        return Weight(f"{self.name}/weight", (self.kinds, row))

    def own_weights(self) -> Iterator[Weight]:
        """The gate and the table."""
        yield self.gate
        yield self.table


@dataclass(frozen=True)
class TiledPatches(Component):
    """The front of the tower: patches of each tile, a class token, positions, a norm, and padding to the multiple that the kernel likes.

    Attributes:
        conv: pixels → patches.
        patches: of a tile, without the class token.
        padded: tokens of a tile, with it and the padding.
        pre: positions of tiles, added to their patches.
        by_tile: positions of patches in each tile.
        norm: on the sum.
    """

    conv: PatchConv
    patches: int
    padded: int
    pre: Tiles
    by_tile: Tiles
    norm: LayerNorm

    @property
    def positions(self) -> Weight:
        """Positions of patches in any tile."""
        return Weight("gated_positional_embedding/embedding", (Axis("positions", self.patches + 1), self.conv.hidden))

    def own_weights(self) -> Iterator[Weight]:
        """``class_embedding`` (hidden,), ``gated_positional_embedding/embedding`` (patches + 1, hidden)."""
        yield Weight("class_embedding", (self.conv.hidden,))
        yield self.positions

    def children(self) -> Iterator[tuple[str, Component]]:
        """As the model names them."""
        yield self.conv.name, self.conv
        yield "pre_tile_positional_embedding", self.pre
        yield "gated_positional_embedding", self.by_tile
        yield "layernorm_pre", self.norm


@dataclass(frozen=True)
class TiledAttention(Attention):
    """Attention over all tiles of an image, whose padding is masked."""


@dataclass(frozen=True)
class TiledLayer(DecoderLayer):
    """A layer of the tower.

    Attributes:
        shows: the name under which the tower's end sees what the layer is given; empty: it does not.
        gated: both branches are scaled by a learned number.
    """

    shows: str = ""
    gated: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """``gate_attn``, ``gate_ffn``: a number each."""
        if self.gated:
            yield Weight("gate_attn", (ONE,))
            yield Weight("gate_ffn", (ONE,))


@dataclass(frozen=True)
class TiledMiddle(Component):
    """Between both parts of the tower: a norm, and positions of tiles.

    Attributes:
        norm: of the first part's output.
        post: the positions.
        tokens: of a tile.
        shows: as for `TiledLayer`.
    """

    norm: LayerNorm
    post: Tiles
    tokens: int
    shows: str = ""

    def children(self) -> Iterator[tuple[str, Component]]:
        """As the model names them."""
        yield "layernorm_post", self.norm
        yield "post_tile_positional_embedding", self.post


@dataclass(frozen=True)
class TiledEnd(Component):
    """The tower's output beside that of some of its layers, without padding, through one linear layer.

    Attributes:
        proj: all of them side by side → the text's width.
        states: names of what the layers showed.
        tiles, tokens, padded: of an image; tokens of a tile without and with padding.
        hidden: the tower's width.
    """

    proj: Linear
    states: tuple[str, ...]
    tiles: int
    tokens: int
    padded: int
    hidden: Axis

    def children(self) -> Iterator[tuple[str, Component]]:
        """The linear layer."""
        yield self.proj.name, self.proj


@dataclass(frozen=True)
class CrossStates(Component):
    """Tokens of images, and who may see them, where cross-attention finds them.

    Attributes:
        tokens: of an image.
    """

    tokens: int


@dataclass(frozen=True)
class CrossAttention(Attention):
    """Queries from the text, keys and values from images."""


@dataclass(frozen=True)
class CrossLayer(Component):
    """Attention to the tokens of images, then a network, each behind a gate; where there are no images the layer is passed by.

    Attributes:
        input_layernorm: before the attention.
        cross_attn: queries from the text, keys and values from the images.
        post_attention_layernorm: before the network.
        mlp: the network.
    """

    input_layernorm: RMSNorm
    cross_attn: CrossAttention
    post_attention_layernorm: RMSNorm
    mlp: GatedMLP

    @property
    def needs_images(self) -> bool:
        """It is passed by without them."""
        return True

    def own_weights(self) -> Iterator[Weight]:
        """``cross_attn_attn_gate``, ``cross_attn_mlp_gate``: a number each."""
        yield Weight("cross_attn_attn_gate", (ONE,))
        yield Weight("cross_attn_mlp_gate", (ONE,))


@dataclass(frozen=True)
class SelfLayer(DecoderLayer):
    """A layer without cross-attention, which is handed the tower's states and masks all the same."""
