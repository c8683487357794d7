"""Gemma 3 with images: its text model, SigLIP's tower, an average over neighbouring patches.

Source: transformers, models/gemma3/modeling_gemma3.py, models/siglip/modeling_siglip.py.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from memcalc.components import LayerNorm, RMSNorm
from memcalc.components.vision import AveragePool, Join
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("gemma3",)
ARCHITECTURES = {"Gemma3ForConditionalGeneration": "gemma3"}


def spec(config: Config) -> ModelSpec:
    """Every image is ``mm_tokens_per_image`` tokens, which see each other both ways.

    Raises:
        ModelError: the patches of an image do not go evenly into its tokens.
    """
    text, part = vision.text_model(config), config.sub("vision_config")
    tower, sizes = vision.clip_tower(part, "vision_tower")
    tokens, across = config.int("mm_tokens_per_image"), isqrt(sizes.patches(sizes.image_size or 0))
    if isqrt(tokens) ** 2 != tokens or across % isqrt(tokens):
        raise config.error(f"mm_tokens_per_image {tokens} are not a square that divides {across} * {across} patches")
    if part.bool("vision_use_head", default=True):
        raise config.error("vision_config.vision_use_head true is not known in gemma3: no model of it has a pooling head")
    hidden = tower[0].module.patches.hidden  # type: ignore[attr-defined]
    pool = AveragePool(RMSNorm(Axis("vision hidden_size", hidden.size), "gemma"), vision.width_of(text), across // isqrt(tokens))
    blocks = (*tower, vision.end("vision_tower/post_layernorm", LayerNorm(hidden)), vision.end("multi_modal_projector", pool))
    sizes = replace(sizes, tokens=tokens, types=True)
    return vision.with_tower(
        config, text, blocks, vision=sizes, join=Join(masks="all"), buffer_bytes=vision.position_bytes(sizes), attentions=("eager", "sdpa")
    )
