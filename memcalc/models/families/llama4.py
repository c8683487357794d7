"""Llama 4 with images: its text model, a tower with rotary positions, pixels shuffled into fewer, wider tokens.

Source: transformers, models/llama4/modeling_llama4.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm, Linear
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec, Weight
from memcalc.specs.vision import Vision

MODEL_TYPES = ("llama4",)
ARCHITECTURES = {"Llama4ForConditionalGeneration": "llama4"}


def spec(config: Config) -> ModelSpec:
    """The tower is counted and not run."""
    text, part = vision.text_model(config), config.sub("vision_config")
    hidden, intermediate = Axis("hidden_size", part.int("hidden_size")), Axis("intermediate_size", part.int("intermediate_size"))
    heads, patch, size, channels = part.int("num_attention_heads"), part.int("patch_size"), part.int("image_size"), part.int("num_channels")
    vision.whole_heads(config, hidden.size, heads)
    sizes = Vision(patch, size, channels=channels, class_tokens=1)
    ratio = part.float("pixel_shuffle_ratio")
    into, out = Axis("projector_input_dim", part.int("projector_input_dim")), Axis("projector_output_dim", part.int("projector_output_dim"))
    last = Axis("vision_output_dim", part.int("vision_output_dim"))
    front = Parts(
        (
            ("patch_embedding/linear", Linear("linear", Axis("channels * patch_size²", channels * patch**2), hidden)),
            ("layernorm_pre", LayerNorm(hidden)),
        ),
        (Weight("class_embedding", (hidden,)), Weight("positional_embedding_vlm", (Axis("positions", sizes.length(1, size)), hidden))),
    )
    adapter = Parts((("mlp/fc1", Linear("fc1", intermediate, into)), ("mlp/fc2", Linear("fc2", out, out))))
    layer = vision.image_layer(hidden, intermediate, heads, out="o_proj", activation="gelu")
    blocks = (
        vision.end("vision_model", front),
        *vision.layers(("vision_model/model/layers", layer, part.int("num_hidden_layers"))),
        vision.end("vision_model/layernorm_post", LayerNorm(hidden)),
        vision.end("vision_model/vision_adapter", adapter),
        vision.end("multi_modal_projector", Linear("linear_1", last, vision.width_of(text))),
    )
    angles = sizes.length(1, size) * (hidden.size // heads // 2) * 8
    sizes = replace(sizes, tokens=round(sizes.patches(size) * ratio**2))
    whole = vision.with_tower(config, text, blocks, vision=sizes, buffer_bytes=angles)
    return replace(whole, untraced=(*whole.untraced, vision.NOT_RUN))
