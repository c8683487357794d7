"""What the towers of Qwen and GLM share: the patches of all images in one row, attention within each image, neighbours merged into tokens.

Source: transformers, models/qwen3_vl/modeling_qwen3_vl.py and its relatives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from memcalc.components import DecoderLayer, Embedding, LayerNorm, Linear, RMSNorm
from memcalc.components.vision import Deepstack, Join, PackedAttention, PackedEmbedding, PatchConv, PatchMerger
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, Block, Component, ModelSpec
from memcalc.specs.vision import Vision


def with_planes(text: ModelSpec, planes: Literal["joined", "interleaved", "repeated"]) -> ModelSpec:
    """A text model whose positions have three numbers, for time, height and width."""
    blocks = []
    for block in text.blocks:
        if isinstance(block.module, Embedding) and block.module.rotary is not None:
            rotary = replace(block.module.rotary, planes=planes)
            blocks.append(replace(block, module=replace(block.module, rotary=rotary)))
        else:
            blocks.append(block)
    return replace(text, blocks=tuple(blocks))


def sizes_of(part: Config) -> Vision:
    """The sizes of images, from ``vision_config``."""
    return Vision(
        patch=part.int("patch_size"),
        channels=part.int("in_channels"),
        frames=part.int("temporal_patch_size"),
        merge=part.int("spatial_merge_size"),
        packed=True,
        fixed=False,
        flat=True,
        types=True,
    )


def embedding(part: Config, sizes: Vision, hidden: Axis, heads: int, *, bias: bool, **more: Any) -> PackedEmbedding:
    """The front of the tower."""
    vision.whole_heads(part, hidden.size, heads)
    return PackedEmbedding(PatchConv("proj", hidden, sizes.channels, sizes.patch, sizes.frames, bias), hidden.size // heads, **more)


def layer(hidden: Axis, heads: int, mlp: Component, norm: LayerNorm | RMSNorm, *, side: int = 0, bias: bool = True, out_bias: bool = True) -> DecoderLayer:
    """A layer of the tower.

    Args:
        hidden, heads: the width, and how many heads share it.
        mlp, norm: its network and its two norms.
        side: patches of a window either way, 0 where an image attends to all of itself.
        bias, out_bias: whether the projections have one.
    """
    attention = PackedAttention(
        heads,
        heads,
        hidden.size // heads,
        q=Linear("qkv", hidden, Axis("3 * hidden_size", 3 * hidden.size), bias),
        k=None,
        v=None,
        o=Linear("proj", hidden, hidden, out_bias),
        causal=False,
        side=side,
    )
    return DecoderLayer(norm, attention, norm, mlp)


def merger(norm: LayerNorm | RMSNorm, sizes: Vision, out: Axis, *, names: tuple[str, str], **more: Any) -> PatchMerger:
    """Neighbours together, through two layers, to the text's width; `norm` is of one patch."""
    merged = Axis("hidden_size * merge²", norm.width.size * sizes.merge**2)
    after = bool(more.get("after"))
    norm = replace(norm, width=merged) if after else norm
    return PatchMerger(norm, vision.two_layers(names, (merged, merged, out), "gelu"), merged, **more)


def qwen3_tower(part: Config) -> tuple[tuple[Block, ...], Vision, tuple[str, ...]]:
    """The tower of Qwen 3-VL and 3.5, with the layers from which neighbours go straight to the text's first layers.

    Returns:
        its blocks, the sizes of images, and the names of what goes to the first layers.

    Raises:
        ModelError: layers are named that it has not.
    """
    sizes, depth, heads = sizes_of(part), part.int("depth", "num_hidden_layers"), part.int("num_heads", "num_attention_heads")
    hidden, out = Axis("hidden_size", part.int("hidden_size")), Axis("out_hidden_size", part.int("out_hidden_size"))
    intermediate, norm = Axis("intermediate_size", part.int("intermediate_size")), LayerNorm(hidden)
    mlp = vision.two_layers(("linear_fc1", "linear_fc2"), (hidden, intermediate, hidden), part.str("hidden_act"))
    front = embedding(part, sizes, hidden, heads, bias=True, positions=part.int("num_position_embeddings"))
    indexes = part.ints("deepstack_visual_indexes", default=())
    if len(set(indexes)) < len(indexes) or any(i >= depth for i in indexes):
        raise part.error(f"deepstack_visual_indexes {list(indexes)} must be different layers below {depth}")
    names = ("linear_fc1", "linear_fc2")
    blocks: list[Block] = [vision.end("visual", front)]
    deep = tuple(f"deepstack {k}" for k in range(len(indexes)))
    made = {i: merger(norm, sizes, out, names=names, after=True, deep=deep[k]) for k, i in enumerate(indexes)}
    done = 0
    for i in (*sorted(indexes), depth - 1):
        blocks += vision.layers(("visual/blocks", layer(hidden, heads, mlp, norm), i + 1 - done))
        if i in made:
            blocks.append(vision.end(f"visual/deepstack_merger_list/{indexes.index(i)}", made.pop(i)))
        done = i + 1
    blocks.append(vision.end("visual/merger", merger(norm, sizes, out, names=names)))
    return tuple(blocks), sizes, deep


def qwen3_model(config: Config, text: ModelSpec) -> ModelSpec:
    """A text model with that tower; what goes to its first layers is added after each of them.

    Raises:
        ModelError: it has fewer layers.
    """
    tower, sizes, deep = qwen3_tower(config.sub("vision_config"))
    if len(deep) > text.num_layers:
        raise config.error(f"vision_config.deepstack_visual_indexes names {len(deep)} layers, and the text has {text.num_layers}")
    front = tower[0].module
    assert isinstance(front, PackedEmbedding)
    whole = vision.with_tower(config, text, tower, vision=sizes, join=Join(listed=True, deep=len(deep)), buffer_bytes=buffer_bytes(front))
    blocks: list[Block] = []
    waiting = list(deep)
    for block in whole.blocks:
        while block.role == "layer" and waiting and block.repeat:
            blocks += [replace(block, repeat=1), Block("deepstack", Deepstack(waiting.pop(0)), role="join")]
            block = replace(block, repeat=block.repeat - 1)  # noqa: PLW2901
        blocks += [block] if block.repeat else []
    return replace(whole, blocks=tuple(blocks))


def buffer_bytes(front: PackedEmbedding) -> int:
    """Frequencies of the axes, twice (VisionRotaryEmbedding: one for each pair of half a head)."""
    return 2 * 4 * (front.head_dim // 4)


__all__ = ["buffer_bytes", "embedding", "layer", "merger", "qwen3_model", "qwen3_tower", "sizes_of", "with_planes"]
