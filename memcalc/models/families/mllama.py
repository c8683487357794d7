"""Llama 3.2 Vision: Llama's layers with layers of cross-attention to images between them, and a tower in two parts.

Source: transformers, models/mllama/modeling_mllama.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, LayerNorm, Linear, RMSNorm
from memcalc.components.mllama import CrossLayer
from memcalc.components.vision import Parts, PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, Block, Component, ModelSpec, Weight
from memcalc.specs.vision import Vision

MODEL_TYPES = ("mllama", "mllama_text_model")
ARCHITECTURES = {"MllamaForConditionalGeneration": "mllama", "MllamaForCausalLM": "mllama_text_model"}
EXTRA_ROWS = 8
"""The table has rows for tokens such as the image's, which the head has no logits for."""


def spec(config: Config) -> ModelSpec:
    """The whole, whose tower is counted and not run, or its text model alone."""
    if config.model_type == "mllama_text_model":
        return text_spec(config)
    text, part = vision.text_model(config, tied=False), config.sub("vision_config")
    sizes, blocks = tower(part)
    out = Linear("multi_modal_projector", Axis("vision_output_dim", part.int("vision_output_dim")), vision.width_of(text), bias=True)
    whole = vision.with_tower(config, text, (*blocks, vision.end("", out)), vision=sizes)
    return replace(whole, untraced=(*whole.untraced, vision.NOT_RUN))


def text_spec(config: Config) -> ModelSpec:
    """Llama with cross-attention; without images those layers are passed by."""
    sizes, norm = decoder.read_sizes(config), RMSNorm(Axis("hidden_size", config.int("hidden_size")))
    mlp, across = decoder.gated_mlp(sizes, config.str("hidden_act")), set(config.ints("cross_attention_layers"))
    head_norm = RMSNorm(Axis("head_dim", sizes.head_dim))
    cross = replace(decoder.attention(sizes, q_norm=head_norm, k_norm=head_norm), rotary=None, causal=False)

    def layer(kind: str) -> Component:
        return CrossLayer(norm, cross, norm, mlp) if kind == "cross" else DecoderLayer(norm, decoder.attention(sizes), norm, mlp)

    layers = decoder.layer_blocks(("cross" if i in across else "self" for i in range(sizes.num_layers)), layer)
    whole = decoder.causal_lm(config, sizes, layers, norm=norm)
    table = whole.blocks[0].module
    assert isinstance(table, Embedding)
    table = replace(table, vocab=Axis("vocab_size + 8", sizes.vocab.size + EXTRA_ROWS))
    return replace(whole, blocks=(replace(whole.blocks[0], module=table), *whole.blocks[1:]))


def tower(part: Config) -> tuple[Vision, tuple[Block, ...]]:
    """A tower whose second part has gated layers; positions for patches and for the tiles that an image is cut into."""
    hidden, intermediate = Axis("hidden_size", part.int("hidden_size")), Axis("intermediate_size", part.int("intermediate_size"))
    heads, patch, size = part.int("attention_heads", "num_attention_heads"), part.int("patch_size"), part.int("image_size")
    vision.whole_heads(part, hidden.size, heads)
    tiles, ratios = part.int("max_num_tiles"), part.get("supported_aspect_ratios")
    kinds = Axis("max_aspect_ratio_id + 1", 1 + (len(ratios) if isinstance(ratios, list) else 8))
    sizes = Vision(patch, size, channels=part.int("num_channels"), class_tokens=1, tiles=tiles, tokens=0)
    one, positions, norm = Axis("1", 1), sizes.length(1, size), LayerNorm(hidden)
    by_tile = Axis("max_num_tiles * hidden_size", tiles * hidden.size)
    front = Parts(
        (("patch_embedding", PatchConv("patch_embedding", hidden, sizes.channels, patch)), ("layernorm_pre", norm)),
        (
            Weight("class_embedding", (hidden,)),
            Weight("gated_positional_embedding/gate", (one,)),
            Weight("gated_positional_embedding/embedding", (Axis("positions", positions), hidden)),
            Weight("gated_positional_embedding/tile_embedding/weight", (kinds, Axis("max_num_tiles * positions * hidden_size", positions * by_tile.size))),
            *(Weight(f"{name}/{weight}", shape) for name in TILES for weight, shape in (("gate", (one,)), ("embedding/weight", (kinds, by_tile)))),
        ),
    )
    layer = vision.image_layer(hidden, intermediate, heads, out="o_proj", activation=part.str("hidden_act"), qkv_bias=False, out_bias=False)
    gated = Parts((("", layer),), (Weight("gate_attn", (one,)), Weight("gate_ffn", (one,))))
    return sizes, (
        vision.end("vision_model", front),
        *vision.layers(("vision_model/transformer/layers", layer, part.int("num_hidden_layers"))),
        *vision.layers(("vision_model/global_transformer/layers", gated, part.int("num_global_layers"))),
        vision.end("vision_model/layernorm_post", norm),
    )


TILES = ("pre_tile_positional_embedding", "post_tile_positional_embedding")
