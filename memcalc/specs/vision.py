"""Vision: how images become the patches of a tower and the tokens of a text."""

from __future__ import annotations

from typing import Any

from memcalc.dataclass import dataclass
from memcalc.errors import InputError
from memcalc.tape.tensor import Axis, Shape
from memcalc.units import ceil_div


@dataclass(frozen=True)
class Vision:
    """The sizes that an image has in a model. Images are square: as high as they are wide.

    Attributes:
        patch: pixels of a patch, either way.
        image_size: pixels of an image that the model is made for, either way; None: any size.
        channels: colours of a pixel.
        frames: how many times a picture is repeated along time, where patches have that axis too (Qwen).
        merge: so many patches, either way, become one token of the text.
        class_tokens: what stands beside the patches in the tower's sequence.
        packed: the patches of all images stand in one row, each image of its own size (Qwen); otherwise every image is a row of a batch.
        fixed: the tower takes `image_size` only.
        tokens: of an image in the text, where they do not follow from its patches.
        tiles: pictures of `image_size` that an image is cut into.
        padded_to: the tiles of an image stand in one row, the tokens of each padded to a multiple of this; 0: each tile is a row.
        flat: the tower takes patches that are cut out already.
        casts: its code casts pixels to the model's dtype; otherwise the batch has to hold them in it.
        types: the batch says of each token whether it is an image's.
        alone: there is no text: a sequence is one image.
    """

    patch: int
    image_size: int | None = None
    channels: int = 3
    frames: int = 1
    merge: int = 1
    class_tokens: int = 0
    packed: bool = False
    fixed: bool = True
    tokens: int | None = None
    tiles: int = 1
    padded_to: int = 0
    flat: bool = False
    casts: bool = True
    types: bool = False
    alone: bool = False

    def size(self, asked: int | None, *, name: str) -> int:
        """Pixels of an image, either way: as asked, or the model's own.

        Args:
            asked: ``image_size`` of a run.
            name: of the model, for messages.

        Raises:
            InputError: there is no such size for this model, or none is said where it has no own.
        """
        size = self.image_size if asked is None else asked
        if size is None:
            raise InputError(f"{name} takes images of any size: say how many pixels one is high and wide", where="image_size")
        if self.fixed and size != self.image_size:
            raise InputError(f"{name} takes images of {self.image_size} pixels either way, not {size}", where="image_size")
        unit = self.patch * self.merge
        if not self.fixed and (size < unit or size % unit):
            near = max(unit, round(size / unit) * unit)
            raise InputError(f"{name} takes images whose sides are multiples of {unit} pixels, not {size}; {near} is the nearest", where="image_size")
        return size

    def patches(self, size: int) -> int:
        """Patches of one image (or tile) of so many pixels either way.

        >>> Vision(patch=14, image_size=336).patches(336)
        576
        """
        return (size // self.patch) ** 2

    def text_tokens(self, size: int) -> int:
        """Tokens of the text that one image stands for.

        >>> Vision(patch=14, merge=2, packed=True, fixed=False).text_tokens(1120)
        1600
        """
        return self.patches(size) // self.merge**2 if self.tokens is None else self.tokens

    def pixels(self, images: Any, size: int) -> Shape:
        """The batch of pictures, as the processor hands it over in fp32."""
        if self.flat:
            depth = Axis("channels * frames * patch²", self.channels * self.frames * self.patch**2)
            return (Axis("patches", images * self.patches(size)), depth)
        side = size // self.patch * self.patch if not self.fixed else size
        return (Axis("images", images * self.tiles), Axis("channels", self.channels), Axis("height", side), Axis("width", side))

    def beside(self, ids: Shape, images: Any) -> tuple[tuple[str, Shape], ...]:
        """Integers that the processor hands over beside pixels and token ids: name and shape of each tensor.

        Args:
            ids: the shape of the token ids.
            images: of each sequence.
        """
        found: tuple[tuple[str, Shape], ...] = (("token_type_ids", ids),) if self.types else ()
        if self.padded_to:
            each, tiles = Axis("images", images), Axis("tiles", self.tiles)
            ratios = (("aspect_ratio_ids", (ids[0], each)), ("aspect_ratio_mask", (ids[0], each, tiles)))
            found += (*ratios, ("cross_attention_mask", (*ids, each, tiles)))
        return found

    def rows(self, images: Any) -> Any:
        """Rows of the tower's batch."""
        return 1 if self.packed else images * (1 if self.padded_to else self.tiles)

    def length(self, images: Any, size: int) -> Any:
        """Tokens of each of them."""
        if self.padded_to:
            return self.tiles * self.padded
        return images * self.patches(size) if self.packed else self.patches(size) + self.class_tokens

    @property
    def padded(self) -> int:
        """Tokens of a tile, with padding."""
        return int(ceil_div(self.patches(self.image_size or 0) + self.class_tokens, self.padded_to)) * self.padded_to
