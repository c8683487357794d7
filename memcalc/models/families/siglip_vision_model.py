"""CLIP's and SigLIP's towers alone: counted, not run.

Source: transformers, models/siglip/modeling_siglip.py, models/clip/modeling_clip.py.
"""

from __future__ import annotations

from memcalc.components import LayerNorm, Linear
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec, Weight

MODEL_TYPES = ("siglip_vision_model", "clip_vision_model")
ARCHITECTURES = {"SiglipVisionModel": "siglip_vision_model", "CLIPVisionModel": "clip_vision_model"}


def spec(config: Config) -> ModelSpec:
    """The tower with its last norm; SigLIP's with a head that pools all patches by attention, unless the file switches it off."""
    tower, sizes = vision.clip_tower(config, "")
    hidden, count = tower[0].module.patches.hidden, config.int("num_hidden_layers")  # type: ignore[attr-defined]
    blocks = [*tower, vision.end("post_layernorm", LayerNorm(hidden))]
    if config.model_type == "siglip_vision_model" and config.bool("vision_use_head", default=True):
        network = vision.two_layers(("fc1", "fc2"), (hidden, Axis("intermediate_size", config.int("intermediate_size")), hidden), config.str("hidden_act"))
        three, one = Axis("3 * hidden_size", 3 * hidden.size), Axis("1", 1)
        own = (Weight("probe", (one, one, hidden)), Weight("attention/in_proj_weight", (three, hidden)), Weight("attention/in_proj_bias", (three,)))
        parts = (("attention/out_proj", Linear("out_proj", hidden, hidden, bias=True)), ("layernorm", LayerNorm(hidden)), ("mlp", network))
        blocks.append(vision.end("head", Parts(parts, own)))
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=tuple(blocks),
        hidden_size=hidden.size,
        num_layers=count,
        vision=sizes,
        untraced=("all of it: it reads no text",),
    )
