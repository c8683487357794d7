"""PaliGemma and PaliGemma 2: SigLIP's tower, one linear layer, Gemma or Gemma 2.

Source: transformers, models/paligemma/modeling_paligemma.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm, Linear
from memcalc.components.vision import Join, Projector
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("paligemma",)
ARCHITECTURES = {"PaliGemmaForConditionalGeneration": "paligemma"}


def spec(config: Config) -> ModelSpec:
    """Each patch is a token; image and prompt see each other both ways.

    Raises:
        ModelError: the projection leads to another width than the text's, or the tower has a pooling head.
    """
    text, part = vision.text_model(config), config.sub("vision_config")
    tower, sizes = vision.clip_tower(part, "vision_tower")
    width = vision.width_of(text)
    if config.int("projection_dim") != width.size:
        raise config.error(f"projection_dim {config.int('projection_dim')} is not the text's hidden_size {width.size}")
    if part.bool("vision_use_head"):
        raise config.error("vision_config.vision_use_head true is not known in paligemma: no model of it has a pooling head")
    hidden = tower[0].module.patches.hidden  # type: ignore[attr-defined]
    linear = Linear("linear", hidden, width, bias=True)
    blocks = (
        *tower,
        vision.end("vision_tower/post_layernorm", LayerNorm(hidden)),
        vision.end("multi_modal_projector", Projector("", linear=linear)),
    )
    sizes = replace(sizes, types=True)
    attentions = tuple(name for name in text.attentions if name != "flash_attention_2")  # it would drop that mask
    whole = vision.with_tower(config, text, blocks, vision=sizes, join=Join(masks="all"), buffer_bytes=vision.position_bytes(sizes))
    return replace(whole, attentions=attentions)
