"""InternVL 3 and 3.5: a tower whose branches are scaled, pixels shuffled into fewer tokens, any text model.

Source: transformers, models/internvl/modeling_internvl.py.
"""

from __future__ import annotations

from memcalc.components import Attention, LayerNorm, Linear, RMSNorm
from memcalc.components.internvl import ScaledLayer
from memcalc.components.shuffle import PixelShuffle
from memcalc.components.vision import ImageEmbedding, PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec
from memcalc.specs.vision import Vision

MODEL_TYPES = ("internvl",)
ARCHITECTURES = {"InternVLForConditionalGeneration": "internvl"}


def spec(config: Config) -> ModelSpec:
    """An image is a tile of the tower's own size; processors cut larger ones into several.

    Raises:
        ModelError: the tower is another one, or has what memcalc does not know.
    """
    text, part = vision.text_model(config), config.sub("vision_config")
    if part.bool("use_mask_token") or not part.bool("use_absolute_position_embeddings") or config.get("vision_feature_layer", -1) != -1:
        raise config.error("use_mask_token, relative positions and features of other layers than the last are not known in internvl")
    hidden, intermediate = Axis("hidden_size", part.int("hidden_size")), Axis("intermediate_size", part.int("intermediate_size"))
    heads, patch, size = part.int("num_attention_heads"), vision.side(part, "patch_size"), vision.side(part, "image_size")
    vision.whole_heads(part, hidden.size, heads)
    merge = round(1 / config.float("downsample_ratio"))
    sizes = Vision(patch, size, channels=part.int("num_channels"), class_tokens=1, merge=merge)
    norm = RMSNorm(hidden) if part.str("norm_type") == "rms_norm" else LayerNorm(hidden)
    bias, head_norm = part.bool("attention_bias"), RMSNorm(hidden) if part.bool("use_qk_norm") else None
    attention = Attention(
        heads,
        heads,
        hidden.size // heads,
        q=Linear("q_proj", hidden, hidden, bias),
        k=Linear("k_proj", hidden, hidden, bias),
        v=Linear("v_proj", hidden, hidden, bias),
        o=Linear("projection_layer", hidden, hidden, bias=True),
        q_norm=head_norm,
        k_norm=head_norm,
        causal=False,
        softmax="model",
    )
    layer = ScaledLayer(norm, attention, vision.two_layers(("fc1", "fc2"), (hidden, intermediate, hidden), part.str("hidden_act")))
    front = ImageEmbedding(
        PatchConv("patch_embeddings/projection", hidden, sizes.channels, patch, bias=True),
        positions=sizes.length(1, size),
        position_name="position_embeddings",
        class_name="cls_token",
        leading=True,
    )
    wide, width, activation = Axis("hidden_size * squares", hidden.size * merge**2), vision.width_of(text), config.str("projector_hidden_act")
    linears = (Linear("linear_1", wide, width, bias=True), Linear("linear_2", width, width, bias=True))
    drops = config.str("vision_feature_select_strategy") == "default"
    shuffle = PixelShuffle(linears, (activation, ""), sizes.text_tokens(size), LayerNorm(wide), drops="first" if drops else "", held=True)
    blocks = (
        vision.end("vision_tower", front),
        *vision.layers(("vision_tower/encoder/layer", layer, part.int("num_hidden_layers"))),
        *(() if part.bool("use_mean_pooling") else (vision.end("vision_tower/layernorm", LayerNorm(hidden)),)),
        vision.end("multi_modal_projector", shuffle),
    )
    return vision.with_tower(config, text, blocks, vision=sizes)
