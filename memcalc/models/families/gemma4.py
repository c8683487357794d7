"""Gemma 4 with images: its text model, a tower with rotary positions on two axes, an average over neighbouring patches.

Source: transformers, models/gemma4/modeling_gemma4.py. Its tower for sound is not known to memcalc.
"""

from __future__ import annotations

from memcalc.components import Linear
from memcalc.components.gemma4 import Gemma4Norm
from memcalc.components.gemma4_vision import Gemma4Patches, Gemma4Pool, Gemma4VisionAttention, Gemma4VisionLayer
from memcalc.components.vision import Join
from memcalc.models.config import Config
from memcalc.models.families import _moe as moe
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec
from memcalc.specs.vision import Vision

MODEL_TYPES = ("gemma4",)
ARCHITECTURES = {"Gemma4ForConditionalGeneration": "gemma4"}


def spec(config: Config) -> ModelSpec:
    """The tower runs on square images, without padding.

    Raises:
        ModelError: it has a tower for sound, or linear layers with bounds of their own.
    """
    if config.has("audio_config"):
        raise config.error("audio_config is not known to memcalc: its tower would be left out of the count")
    text, part = vision.text_model(config), config.sub("vision_config")
    if part.bool("use_clipped_linears"):
        raise part.error("vision_config.use_clipped_linears true is not known to memcalc")
    hidden, patch = Axis("hidden_size", part.int("hidden_size")), part.int("patch_size")
    heads, kv_heads, dim = part.int("num_attention_heads"), part.int("num_key_value_heads"), part.int("head_dim")
    queries, keys = Axis("heads * head_dim", heads * dim), Axis("kv_heads * head_dim", kv_heads * dim)
    norm, head_norm = Gemma4Norm(hidden), Gemma4Norm(Axis("head_dim", dim))
    attention = Gemma4VisionAttention(
        heads,
        kv_heads,
        dim,
        q=Linear("q_proj/linear", hidden, queries),
        k=Linear("k_proj/linear", hidden, keys),
        v=Linear("v_proj/linear", hidden, keys),
        o=Linear("o_proj/linear", queries, hidden),
        q_norm=head_norm,
        k_norm=head_norm,
        v_norm=Gemma4Norm(head_norm.width, "unscaled"),
        causal=False,
    )
    network = moe.swiglu(hidden, Axis("intermediate_size", part.int("intermediate_size")), part.str("hidden_activation"))
    patches = Linear("input_proj", Axis("channels * patch_size²", 3 * patch**2), hidden)
    out = Linear("embedding_projection", hidden, vision.width_of(text))
    standardised, side = part.bool("standardize"), part.int("pooling_kernel_size")
    blocks = (
        vision.end("vision_tower/patch_embedder", Gemma4Patches(patches, part.int("position_embedding_size"), dim)),
        *vision.layers(("vision_tower/encoder/layers", Gemma4VisionLayer(attention, network, norm), part.int("num_hidden_layers"))),
        vision.end("embed_vision", Gemma4Pool(Gemma4Norm(hidden, "unscaled"), out, side, standardised)),
    )
    sizes = Vision(patch, merge=side, fixed=False, flat=True, types=True)
    both_ways = config.sub("text_config").get("use_bidirectional_attention") == "vision"
    buffers = 2 * 2 * hidden.size * standardised + 2 * 4 * (dim // 4)
    return vision.with_tower(config, text, blocks, vision=sizes, join=Join(listed=True, masks="windows" if both_ways else ""), buffer_bytes=buffers)
