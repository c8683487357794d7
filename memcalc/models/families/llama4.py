"""Llama 4 with images: its text model, a tower with rotary positions, pixels shuffled into fewer, wider tokens.

Source: transformers, models/llama4/modeling_llama4.py.
"""

from __future__ import annotations

from memcalc.components import LayerNorm, Linear, Rotary
from memcalc.components.llama4_vision import Llama4Patches
from memcalc.components.shuffle import PixelShuffle
from memcalc.components.vision import Join, Projector
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec
from memcalc.specs.vision import Vision

MODEL_TYPES = ("llama4",)
ARCHITECTURES = {"Llama4ForConditionalGeneration": "llama4"}


def spec(config: Config) -> ModelSpec:
    """The tower runs on images of its own size, or tiles of them: each counts as an image."""
    text, part = vision.text_model(config), config.sub("vision_config")
    hidden, intermediate = Axis("hidden_size", part.int("hidden_size")), Axis("intermediate_size", part.int("intermediate_size"))
    heads, patch, size, channels = part.int("num_attention_heads"), part.int("patch_size"), part.int("image_size"), part.int("num_channels")
    vision.whole_heads(config, hidden.size, heads)
    ratio = part.float("pixel_shuffle_ratio")
    sizes = Vision(patch, size, channels=channels, class_tokens=1, tokens=round((size // patch * ratio) ** 2), casts=False)
    into, out = Axis("projector_input_dim", part.int("projector_input_dim")), Axis("projector_output_dim", part.int("projector_output_dim"))
    pixels = Linear("patch_embedding/linear", Axis("channels * patch_size²", channels * patch**2), hidden)
    front = Llama4Patches(pixels, sizes.patches(size), LayerNorm(hidden), hidden.size // heads)
    adapter = PixelShuffle((Linear("mlp/fc1", intermediate, into), Linear("mlp/fc2", out, out)), ("gelu", "gelu"), sizes.text_tokens(size), drops="last")
    angles = Rotary(hidden.size // heads, "complex", name="tower")
    layer = vision.image_layer(hidden, intermediate, heads, out="o_proj", activation="gelu", rotary=angles, softmax="model")
    last = Linear("linear_1", Axis("vision_output_dim", part.int("vision_output_dim")), vision.width_of(text))
    blocks = (
        vision.end("vision_model", front),
        *vision.layers(("vision_model/model/layers", layer, part.int("num_hidden_layers"))),
        vision.end("vision_model/layernorm_post", LayerNorm(hidden)),
        vision.end("vision_model/vision_adapter", adapter),
        vision.end("multi_modal_projector", Projector("", linear=last)),
    )
    return vision.with_tower(config, text, blocks, vision=sizes, join=Join(outer=True), buffer_bytes=sizes.length(1, size) * (hidden.size // heads // 2) * 8)
