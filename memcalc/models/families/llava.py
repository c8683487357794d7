"""LLaVA 1.5: CLIP's tower, a projector of two layers, any text model. LLaVA-NeXT (Video) and LLaVA-OneVision, whose towers are counted and not run.

Source: transformers, models/llava/modeling_llava.py, models/clip/modeling_clip.py, models/llava_next/modeling_llava_next.py and
models/llava_onevision/modeling_llava_onevision.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm
from memcalc.components.vision import Join, Parts, Projector, Unseen
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, Block, ModelSpec, Weight

MODEL_TYPES = ("llava", "llava_next", "llava_next_video", "llava_onevision")
ARCHITECTURES = {
    "LlavaForConditionalGeneration": "llava",
    "LlavaNextForConditionalGeneration": "llava_next",
    "LlavaNextVideoForConditionalGeneration": "llava_next_video",
    "LlavaOnevisionForConditionalGeneration": "llava_onevision",
}


def spec(config: Config) -> ModelSpec:
    """The text sees the last layer but one of the tower, whose later parts are counted and take no gradient.

    Raises:
        ModelError: the tower is another one, or several of its layers are shown.
    """
    tied = config.bool("tie_word_embeddings") or config.sub("text_config").bool("tie_word_embeddings", default=False)
    text, part = vision.text_model(config, tied=tied), config.sub("vision_config")
    if config.get("spatial_pool_mode") == "conv":
        raise config.error("spatial_pool_mode conv is not known to memcalc")
    if part.model_type not in ("clip_vision_model", "siglip_vision_model"):
        raise config.error(f"vision_config.model_type {part.model_type} is not known in {config.model_type}; clip_vision_model and siglip_vision_model are")
    tower, sizes = vision.clip_tower(part, "vision_tower")
    front, layers = tower
    seen = config.get("vision_feature_layer", -1 if config.model_type == "llava_onevision" else -2)
    if isinstance(seen, bool) or not isinstance(seen, int) or not -layers.repeat <= seen < 0:
        raise config.error(f"vision_feature_layer is {seen!r}; one of the last layers, such as -2, was expected")
    drops = bool(sizes.class_tokens) and config.str("vision_feature_select_strategy", default="default") == "default"
    hidden, width, bias = front.module.patches.hidden, vision.width_of(text), config.bool("multimodal_projector_bias", default=True)  # type: ignore[attr-defined]
    mlp = vision.two_layers(("linear_1", "linear_2"), (hidden, width, width), config.str("projector_hidden_act", default="gelu"), bias=bias)
    unseen = -seen - 1
    blocks = (
        front,
        replace(layers, repeat=layers.repeat - unseen),
        *vision.layers((layers.path, Unseen(layers.module), unseen)),
        vision.end("vision_tower/post_layernorm", Unseen(LayerNorm(hidden), first_token=bool(sizes.class_tokens))),
        vision.end("multi_modal_projector", Projector("", mlp=mlp, drop_class=drops, held=True)),
    )
    sizes = replace(sizes, tokens=sizes.patches(sizes.image_size or 0) + (0 if drops else sizes.class_tokens))
    whole = vision.with_tower(config, text, blocks, vision=sizes, join=Join(listed=True), buffer_bytes=vision.position_bytes(sizes))
    return whole if config.model_type == "llava" else with_tiles(whole, width)


def with_tiles(whole: ModelSpec, width: Axis) -> ModelSpec:
    """The model, whose images are cut into tiles that a learned vector separates row by row."""
    newline = Block("", Parts((), (Weight("image_newline", (width,)),)), role="tower_end")
    first = next(i for i, block in enumerate(whole.blocks) if block.sees_images)
    blocks = (*whole.blocks[:first], newline, *whole.blocks[first:])
    return replace(whole, blocks=blocks, untraced=(*whole.untraced, vision.NOT_RUN))
