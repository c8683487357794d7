"""Mistral Small 3.1 and later: Pixtral's tower, squares of patches merged, any text model.

Source: transformers, models/mistral3/modeling_mistral3.py, models/pixtral/modeling_pixtral.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Linear, RMSNorm, Rotary
from memcalc.components.pixtral import PixtralAttention, PixtralMerger, PixtralPatches
from memcalc.components.vision import Join, PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _moe as moe
from memcalc.models.families import _vision as vision
from memcalc.models.families._decoder import rotary_buffer_bytes
from memcalc.specs.model import Axis, ModelSpec
from memcalc.specs.vision import Vision

MODEL_TYPES = ("mistral3",)
ARCHITECTURES = {"Mistral3ForConditionalGeneration": "mistral3"}


def spec(config: Config) -> ModelSpec:
    """Images of any size; attention in the tower has a mask over the patches of all images of a batch.

    Raises:
        ModelError: the tower is another one, or other layers of it are shown than the last.
    """
    text, part = vision.text_model(config), config.sub("vision_config")
    if part.model_type != "pixtral" or config.get("vision_feature_layer", -1) != -1:
        raise config.error("vision_config.model_type pixtral and vision_feature_layer -1 were expected")
    hidden, intermediate = Axis("hidden_size", part.int("hidden_size")), Axis("intermediate_size", part.int("intermediate_size"))
    heads, patch, side = part.int("num_attention_heads"), vision.side(part, "patch_size"), config.int("spatial_merge_size")
    vision.whole_heads(part, hidden.size, heads)
    head_dim, norm = hidden.size // heads, RMSNorm(hidden)
    sizes = Vision(patch, channels=part.int("num_channels"), merge=side, packed=True, fixed=False)
    linears = {name: Linear(name, hidden, hidden) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    attention = PixtralAttention(heads, heads, head_dim, q=linears["q_proj"], k=linears["k_proj"], v=linears["v_proj"], o=linears["o_proj"], causal=False)
    layer = DecoderLayer(norm, attention, norm, moe.swiglu(hidden, intermediate, part.str("hidden_act")))
    width, bias = vision.width_of(text), config.bool("multimodal_projector_bias")
    merging = Linear("patch_merger/merging_layer", Axis("hidden_size * squares", hidden.size * side**2), hidden)
    mlp = vision.two_layers(("linear_1", "linear_2"), (hidden, width, width), config.str("projector_hidden_act"), bias=bias)
    blocks = (
        vision.end("vision_tower", PixtralPatches(PatchConv("patch_conv", hidden, sizes.channels, patch), norm, head_dim)),
        *vision.layers(("vision_tower/transformer/layers", layer, part.int("num_hidden_layers"))),
        vision.end("multi_modal_projector", PixtralMerger(norm, merging, mlp, side)),
    )
    return vision.with_tower(config, text, blocks, vision=sizes, join=Join(listed=True), buffer_bytes=rotary_buffer_bytes(Rotary(head_dim)))
