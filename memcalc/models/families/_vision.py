"""What models that see images share: a text model of any family, a tower beside it, and what leads from one to the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from memcalc.components import MLP, Attention, DecoderLayer, Embedding, LayerNorm, Linear, Rotary
from memcalc.components.vision import ImageEmbedding, Join, PatchConv
from memcalc.models import families
from memcalc.models.config import Config
from memcalc.specs.model import Axis, Block, Component, ModelSpec
from memcalc.specs.vision import Vision

NOT_RUN = "the vision tower on images"


def text_model(config: Config, *, flat: str = "", tied: bool | None = None) -> ModelSpec:
    """The text model that ``text_config`` describes, by the family of its own ``model_type``.

    Args:
        config: of the whole model, whose word on tied embeddings counts.
        flat: its model_type, where older files hold its keys at the top.
        tied: that word, where it is not ``tie_word_embeddings`` at the top.
    """
    tied = config.bool("tie_word_embeddings") if tied is None else tied
    part = config.sub("text_config", flat=flat, tie_word_embeddings=tied)
    return families.family(part.model_type, where=config.where).spec(part)


def with_tower(config: Config, text: ModelSpec, tower: tuple[Block, ...], *, vision: Vision, join: Join | None = None, **more: Any) -> ModelSpec:
    """The text model with a tower, which runs after the embedding of tokens and before the first layer.

    Args:
        config: of the whole model.
        text: the text model.
        tower: its blocks, without the one that joins both.
        vision: the sizes of images.
        join: how the tower's tokens take their places.
        more: fields of the whole; ``buffer_bytes`` are the tower's.
    """
    ends = next(i for i, block in enumerate(text.blocks) if block.role == "embedding") + 1
    blocks = (*text.blocks[:ends], *tower, Block("join", join or Join(), role="join"), *text.blocks[ends:])
    whole = replace(
        text,
        name=config.name,
        model_type=config.model_type,
        text_type=text.model_type,
        blocks=blocks,
        vision=vision,
        buffer_bytes=text.buffer_bytes + more.pop("buffer_bytes", 0),
        **more,
    )
    return whole if text.active_params is None else replace(whole, active_params=text.active_params + whole.num_params - text.num_params)


def layers(*blocks: tuple[str, Component, int]) -> tuple[Block, ...]:
    """Layers of a tower: path, module and number of repetitions; those that are not there (0) are left out."""
    return tuple(Block(path, module, count, role="tower") for path, module, count in blocks if count)


def end(path: str, module: Component) -> Block:
    """What stands before or after a tower's layers."""
    return Block(path, module, role="tower_end")


def two_layers(names: tuple[str, str], sizes: tuple[Axis, Axis, Axis], activation: str, *, bias: bool = True) -> MLP:
    """A network of two linear layers."""
    return MLP(up=Linear(names[0], sizes[0], sizes[1], bias), down=Linear(names[1], sizes[1], sizes[2], bias), activation=activation)


def image_layer(
    hidden: Axis,
    intermediate: Axis,
    heads: int,
    *,
    out: str,
    activation: str,
    qkv_bias: bool = True,
    out_bias: bool = True,
    rotary: Rotary | None = None,
    softmax: Literal["fp32", "model"] = "fp32",
    dropouts: tuple[float, float] = (0.0, 0.0),
) -> DecoderLayer:
    """A layer of a tower whose images are rows of a batch: LayerNorms, attention that sees all patches, a network of two layers.

    Args:
        hidden, intermediate: the widths.
        heads: how many share the hidden size.
        out: the name of attention's output projection.
        activation: of the network.
        qkv_bias, out_bias: which projections have one.
        rotary: of models that turn queries and keys.
        softmax: whether eager code casts scores up for it.
        dropouts: on what each branch adds, and on the probabilities of attention.
    """
    norm = LayerNorm(hidden)
    attention = Attention(
        heads,
        heads,
        hidden.size // heads,
        q=Linear("q_proj", hidden, hidden, qkv_bias),
        k=Linear("k_proj", hidden, hidden, qkv_bias),
        v=Linear("v_proj", hidden, hidden, qkv_bias),
        o=Linear(out, hidden, hidden, out_bias),
        rotary=rotary,
        causal=False,
        softmax=softmax,
        dropout=dropouts[1],
    )
    return DecoderLayer(norm, attention, norm, two_layers(("fc1", "fc2"), (hidden, intermediate, hidden), activation), dropout=dropouts[0])


def whole_heads(config: Config, hidden: int, heads: int) -> None:
    """Make sure that heads share the hidden size.

    Raises:
        ModelError: they do not divide it.
    """
    if hidden % heads:
        raise config.error(f"the hidden size {hidden} of the vision tower is not a multiple of its {heads} heads")


def clip_tower(config: Config, path: str) -> tuple[tuple[Block, ...], Vision]:
    """CLIP's or SigLIP's tower, without its last norm or head, and the sizes of its images.

    Args:
        config: its own configuration, whose ``model_type`` says which.
        path: where it stands in the model.
    """
    clip = config.model_type.startswith("clip")
    hidden, intermediate = Axis("hidden_size", config.int("hidden_size")), Axis("intermediate_size", config.int("intermediate_size"))
    heads, patch, size = config.int("num_attention_heads"), config.int("patch_size"), config.int("image_size")
    whole_heads(config, hidden.size, heads)
    vision = Vision(patch, size, channels=config.int("num_channels"), class_tokens=int(clip))
    front = ImageEmbedding(
        PatchConv("patch_embedding", hidden, vision.channels, patch, bias=not clip),
        positions=vision.length(1, size),
        position_name="position_embedding/weight",
        class_name="class_embedding" if clip else "",
        norm=LayerNorm(hidden) if clip else None,
    )
    layer = image_layer(hidden, intermediate, heads, out="out_proj", activation=config.str("hidden_act"))
    return (end(path, front), *layers((f"{path}/encoder/layers", layer, config.int("num_hidden_layers")))), vision


def position_bytes(vision: Vision) -> int:
    """The numbers of positions, a buffer of int64 (CLIPVisionEmbeddings.position_ids)."""
    return 8 * int(vision.length(1, vision.image_size or 0))


def width_of(spec: ModelSpec) -> Axis:
    """The width of the text model's embeddings."""
    table = next(block.module for block in spec.blocks if block.role == "embedding")
    assert isinstance(table, Embedding)
    return table.width


def side(config: Config, key: str) -> int:
    """Pixels either way of what may be given as two equal numbers.

    Raises:
        ModelError: they are not equal.
    """
    value = config.get(key)
    if isinstance(value, list):
        sides = config.ints(key, minimum=1)
        if len(sides) != 2 or sides[0] != sides[1]:
            raise config.error(f"vision_config.{key} is {list(sides)}; a square was expected")
        return sides[0]
    return config.int(key)
