"""GLM-4.1V, and GLM-4.6V: a GLM with positions in three planes, and a tower with RMSNorms and a convolution that merges neighbours.

Source: transformers, models/glm4v/modeling_glm4v.py, models/glm46v/modeling_glm46v.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm, Rotary
from memcalc.components.vision import ConvMerger, Join, PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _packed as packed
from memcalc.models.families import _text as texts
from memcalc.models.families import _vision as vision
from memcalc.models.families import glm
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("glm4v", "glm46v", "glm4v_text")
ARCHITECTURES = {"Glm4vForConditionalGeneration": "glm4v", "Glm46VForConditionalGeneration": "glm46v"}


def spec(config: Config) -> ModelSpec:
    """The whole, or its text model alone."""
    if config.model_type != "glm4v_text":
        return with_tower(config, vision.text_model(config))
    sizes, norm = decoder.read_sizes(config), RMSNorm(Axis("hidden_size", config.int("hidden_size")))
    rotary = Rotary(texts.partial_rotary(config, sizes.head_dim, default=1.0), "interleaved", sliced=True)
    attention = decoder.attention(sizes, qkv_bias=True, rotary=rotary)
    layer = DecoderLayer(norm, attention, norm, glm.mlp(config, sizes), post_mixer_norm=norm, post_mlp_norm=norm)
    return packed.with_planes(glm.model(config, sizes, layer), "repeated")


def with_tower(config: Config, text: ModelSpec) -> ModelSpec:
    """A text model with GLM's tower."""
    part = config.sub("vision_config")
    sizes, heads = packed.sizes_of(part), part.int("num_heads", "num_attention_heads")
    hidden, out = Axis("hidden_size", part.int("hidden_size")), Axis("out_hidden_size", part.int("out_hidden_size"))
    norm, activation, bias = RMSNorm(hidden), part.str("hidden_act"), part.bool("attention_bias")
    layer = packed.layer(hidden, heads, moe.swiglu(hidden, out, activation), norm, bias=bias, out_bias=False)
    positions = (part.int("image_size") // sizes.patch) ** 2
    table = "embeddings/position_embedding/weight"
    front = packed.embedding(part, sizes, hidden, heads, bias=True, style="glm4v", norm=norm, positions=positions, position_name=table)
    merger = ConvMerger(
        norm,
        PatchConv("downsample", out, hidden.size, sizes.merge, bias=True),
        moe.swiglu(out, Axis("intermediate_size", part.int("intermediate_size")), activation),
    )
    blocks = (
        vision.end("visual", front),
        *vision.layers(("visual/blocks", layer, part.int("depth", "num_hidden_layers"))),
        vision.end("visual", merger),
    )
    return vision.with_tower(config, text, blocks, vision=sizes, join=Join(listed=True), buffer_bytes=packed.buffer_bytes(front))
