"""Command A Vision, Aya Vision and LFM2-VL: a text model beside SigLIP, whose neighbouring patches are joined; the tower is counted, not run.

Source: transformers, models/cohere2_vision/modeling_cohere2_vision.py, models/aya_vision/modeling_aya_vision.py, models/lfm2_vl/modeling_lfm2_vl.py.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Any

from memcalc.components import Head, LayerNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _vision as vision
from memcalc.models.families import siglip_vision_model
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("cohere2_vision", "aya_vision", "lfm2_vl")
ARCHITECTURES = {
    "Cohere2VisionForConditionalGeneration": "cohere2_vision",
    "AyaVisionForConditionalGeneration": "aya_vision",
    "Lfm2VlForConditionalGeneration": "lfm2_vl",
}


def spec(config: Config) -> ModelSpec:
    """SigLIP 2's tower takes images of any size; its table of positions is read as that of a square one. No logits are scaled here."""
    text = vision.text_model(config, tied=config.bool("tie_embedding", "tie_word_embeddings"))
    ends = [replace(block, module=replace(block.module, scaled=False)) if isinstance(block.module, Head) else block for block in text.blocks]
    text = replace(text, blocks=tuple(ends))
    part = config.sub("vision_config")
    changed: dict[str, Any] = {"vision_use_head": part.bool("vision_use_head")}
    any_size = part.model_type == "siglip2_vision_model"
    if any_size:
        changed |= {"model_type": "siglip_vision_model", "image_size": isqrt(part.int("num_patches")) * part.int("patch_size")}
    part = config.sub("vision_config", **changed)
    tower = siglip_vision_model.spec(part)
    joined = Axis("hidden_size * downsample_factor²", tower.hidden_size * config.int("downsample_factor") ** 2)
    end = Block("multi_modal_projector", projector(config, joined, vision.width_of(text)), role="tower_end")
    blocks = (*(replace(block, path=f"vision_tower/{block.path}".rstrip("/")) for block in tower.blocks), end)
    assert tower.vision is not None
    positions = 0 if any_size else vision.position_bytes(tower.vision)
    whole = vision.with_tower(config, text, blocks, vision=tower.vision, buffer_bytes=positions)
    return replace(whole, untraced=(*whole.untraced, vision.NOT_RUN))


def projector(config: Config, joined: Axis, width: Axis) -> Parts:
    """Two layers, half of the first one's output a gate, where it is Cohere's; a norm before them, where it is not Command A's."""
    if config.model_type == "lfm2_vl":
        between = half = Axis("projector_hidden_size", config.int("projector_hidden_size"))
        bias = config.bool("projector_bias")
        norms = (("layer_norm", LayerNorm(joined)),) if config.bool("projector_use_layernorm") else ()
    else:
        between = Axis("alignment_intermediate_size", config.int("alignment_intermediate_size", default=width.size))
        half, bias = Axis("alignment_intermediate_size / 2", between.size // 2), True
        norms = (("layernorm", LayerNorm(joined)),) if config.model_type == "aya_vision" else ()
    return Parts((*norms, *counted.linears(joined, between, "linear_1", bias=bias), *counted.linears(half, width, "linear_2", bias=bias)))
