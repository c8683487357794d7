"""Llama 3.2 Vision: Llama's layers with layers of cross-attention to images between them, and a tower in two parts.

Source: transformers, models/mllama/modeling_mllama.py.
"""

from __future__ import annotations

from dataclasses import fields, replace

from memcalc.components import Embedding, LayerNorm, Linear, RMSNorm
from memcalc.components.mllama import CrossAttention, CrossLayer, CrossStates, SelfLayer, TiledAttention, TiledEnd, TiledLayer, TiledMiddle, TiledPatches, Tiles
from memcalc.components.vision import PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, Block, Component, ModelSpec
from memcalc.specs.vision import Vision

MODEL_TYPES = ("mllama", "mllama_text_model")
ARCHITECTURES = {"MllamaForConditionalGeneration": "mllama", "MllamaForCausalLM": "mllama_text_model"}
RATIOS = 8
"""Ways to lay up to four tiles out: ``supported_aspect_ratios`` of MllamaVisionConfig."""

EXTRA_ROWS = 8
"""The table has rows for tokens such as the image's, which the head has no logits for."""


def spec(config: Config) -> ModelSpec:
    """The whole, whose tower runs before the text is embedded, or its text model alone."""
    if config.model_type == "mllama_text_model":
        return text_spec(config)
    text, part = vision.text_model(config, tied=False), config.sub("vision_config")
    sizes, blocks = tower(part, vision.width_of(text))
    join = Block("join", CrossStates(sizes.tiles * sizes.padded), role="join")
    first, *rest = text.blocks
    return replace(text, name=config.name, model_type=config.model_type, text_type=text.model_type, blocks=(*blocks, first, join, *rest), vision=sizes)


def text_spec(config: Config) -> ModelSpec:
    """Llama with cross-attention; without images those layers are passed by."""
    sizes, norm = decoder.read_sizes(config), RMSNorm(Axis("hidden_size", config.int("hidden_size")))
    mlp, across = decoder.gated_mlp(sizes, config.str("hidden_act")), set(config.ints("cross_attention_layers"))
    head_norm = RMSNorm(Axis("head_dim", sizes.head_dim))
    plain = replace(decoder.attention(sizes, q_norm=head_norm, k_norm=head_norm), rotary=None, causal=False)
    cross = CrossAttention(**{field.name: getattr(plain, field.name) for field in fields(plain)})

    def layer(kind: str) -> Component:
        return CrossLayer(norm, cross, norm, mlp) if kind == "cross" else SelfLayer(norm, decoder.attention(sizes), norm, mlp)

    layers = decoder.layer_blocks(("cross" if i in across else "self" for i in range(sizes.num_layers)), layer)
    whole = decoder.causal_lm(config, sizes, layers, norm=norm)
    table = whole.blocks[0].module
    assert isinstance(table, Embedding)
    table = replace(table, vocab=Axis(f"vocab_size + {EXTRA_ROWS}", sizes.vocab.size + EXTRA_ROWS))
    return replace(whole, blocks=(replace(whole.blocks[0], module=table), *whole.blocks[1:]))


def tower(part: Config, width: Axis) -> tuple[Vision, tuple[Block, ...]]:
    """A tower whose second part has gated layers; positions for patches and for the tiles that an image is cut into.

    Raises:
        ModelError: the widths of what it gives do not add up.
    """
    hidden, count = Axis("hidden_size", part.int("hidden_size")), part.int("num_hidden_layers")
    heads, patch, size = part.int("attention_heads", "num_attention_heads"), part.int("patch_size"), part.int("image_size")
    vision.whole_heads(part, hidden.size, heads)
    tiles, ratios = part.int("max_num_tiles"), part.get("supported_aspect_ratios")
    kinds = Axis("max_aspect_ratio_id + 1", 1 + (len(ratios) if isinstance(ratios, list) else RATIOS))
    sizes = Vision(patch, size, channels=part.int("num_channels"), class_tokens=1, tiles=tiles, tokens=0, padded_to=PADDED_TO)
    positions, norm, of_tiles = sizes.patches(size) + 1, LayerNorm(hidden), Tiles(kinds, tiles, hidden)
    by_tile = Tiles(kinds, tiles, hidden, positions, "tile_embedding")
    front = TiledPatches(PatchConv("patch_embedding", hidden, sizes.channels, patch), positions - 1, sizes.padded, of_tiles, by_tile, norm)
    picked = part.ints("intermediate_layers_indices")
    out = Axis("vision_output_dim", part.int("vision_output_dim"))
    if out.size != hidden.size * (1 + len(picked)) or any(i >= count for i in picked):
        raise part.error(f"vision_output_dim {out.size} is not hidden_size {hidden.size} * {1 + len(picked)}, or an intermediate layer is not there")
    shows = {i + 1: f"state {i}" for i in picked}
    layers = [layer(part, hidden, heads, shows=shows.get(i, "")) for i in range(count)]
    last = TiledEnd(Linear("multi_modal_projector", out, width, bias=True), tuple(f"state {i}" for i in picked), tiles, positions, sizes.padded, hidden)
    return sizes, (
        vision.end("vision_model", front),
        *(replace(block, role="tower_end") for block in decoder.layer_blocks(layers, lambda made: made, "vision_model/transformer/layers")),
        vision.end("vision_model", TiledMiddle(norm, of_tiles, sizes.padded, shows.get(count, ""))),
        Block("vision_model/global_transformer/layers", layer(part, hidden, heads, gated=True), part.int("num_global_layers"), role="tower_end"),
        vision.end("", last),
    )


def layer(part: Config, hidden: Axis, heads: int, *, shows: str = "", gated: bool = False) -> TiledLayer:
    """One layer of either part, which is never checkpointed."""
    intermediate = Axis("intermediate_size", part.int("intermediate_size"))
    plain = vision.image_layer(hidden, intermediate, heads, out="o_proj", activation=part.str("hidden_act"), qkv_bias=False, out_bias=False)
    attention = TiledAttention(**{field.name: getattr(plain.self_attn, field.name) for field in fields(plain.self_attn)})
    return TiledLayer(plain.input_layernorm, attention, plain.post_attention_layernorm, plain.mlp, shows=shows, gated=gated)


PADDED_TO = 8
"""Tokens of a tile are padded to a multiple of this (MllamaVisionModel.forward)."""
