"""Idefics 3 and SmolVLM: SigLIP's tower on images of which some may be padding, pixels shuffled, any text model.

Source: transformers, models/idefics3/modeling_idefics3.py, models/smolvlm/modeling_smolvlm.py.
"""

from __future__ import annotations

from memcalc.components import LayerNorm, Linear
from memcalc.components.shuffle import PixelShuffle
from memcalc.components.vision import ImageEmbedding, Join, PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec
from memcalc.specs.vision import Vision

MODEL_TYPES = ("idefics3", "smolvlm")
ARCHITECTURES = {"Idefics3ForConditionalGeneration": "idefics3", "SmolVLMForConditionalGeneration": "smolvlm"}


def spec(config: Config) -> ModelSpec:
    """An image is one of the tower's own size; processors cut larger ones into several."""
    text, part = vision.text_model(config), config.sub("vision_config")
    hidden, intermediate = Axis("hidden_size", part.int("hidden_size")), Axis("intermediate_size", part.int("intermediate_size"))
    heads, patch, size, merge = part.int("num_attention_heads"), vision.side(part, "patch_size"), vision.side(part, "image_size"), config.int("scale_factor")
    vision.whole_heads(part, hidden.size, heads)
    sizes = Vision(patch, size, channels=part.int("num_channels"), merge=merge)
    patches = PatchConv("patch_embedding", hidden, sizes.channels, patch, bias=True)
    front = ImageEmbedding(patches, positions=sizes.patches(size), position_name="position_embedding/weight", picked=True)
    layer = vision.image_layer(hidden, intermediate, heads, out="out_proj", activation=part.str("hidden_act"))
    wide = Axis("hidden_size * scale_factor²", hidden.size * merge**2)
    shuffle = PixelShuffle((Linear("modality_projection/proj", wide, vision.width_of(text)),), ("",), sizes.text_tokens(size), held=True)
    blocks = (
        vision.end("vision_model", front),
        *vision.layers(("vision_model/encoder/layers", layer, part.int("num_hidden_layers"))),
        vision.end("vision_model/post_layernorm", LayerNorm(hidden)),
        vision.end("connector", shuffle),
    )
    return vision.with_tower(config, text, blocks, vision=sizes, join=Join(listed=True))
