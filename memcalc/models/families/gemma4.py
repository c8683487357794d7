"""Gemma 4 with images: its text model, a tower with rotary positions on two axes, an average over neighbouring patches.

Source: transformers, models/gemma4/modeling_gemma4.py. Its tower for sound is not known to memcalc.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Linear
from memcalc.components.gemma4 import Gemma4Norm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _moe as moe
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec, Weight
from memcalc.specs.vision import Vision

MODEL_TYPES = ("gemma4",)
ARCHITECTURES = {"Gemma4ForConditionalGeneration": "gemma4"}


def spec(config: Config) -> ModelSpec:
    """The tower is counted and not run.

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
    queries, keys, bias = Axis("heads * head_dim", heads * dim), Axis("kv_heads * head_dim", kv_heads * dim), part.bool("attention_bias")
    norm, head_norm = Gemma4Norm(hidden), Gemma4Norm(Axis("head_dim", dim))
    parts = {
        "self_attn/q_proj": Linear("linear", hidden, queries, bias),
        "self_attn/k_proj": Linear("linear", hidden, keys, bias),
        "self_attn/v_proj": Linear("linear", hidden, keys, bias),
        "self_attn/o_proj": Linear("linear", queries, hidden, bias),
    }
    network = moe.swiglu(hidden, Axis("intermediate_size", part.int("intermediate_size")), part.str("hidden_activation"))
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    layer = Parts(
        (
            *((f"{path}/{linear.name}", linear) for path, linear in parts.items()),
            ("self_attn/q_norm", head_norm),
            ("self_attn/k_norm", head_norm),
            ("mlp", network),
            *((name, norm) for name in norms),
        )
    )
    table = Weight("position_embedding_table", (Axis("2", 2), Axis("position_embedding_size", part.int("position_embedding_size")), hidden))
    patches = Axis("channels * patch_size²", 3 * patch**2)
    front = Parts((("input_proj", Linear("input_proj", patches, hidden)),), (table,))
    blocks = (
        vision.end("vision_tower/patch_embedder", front),
        *vision.layers(("vision_tower/encoder/layers", layer, part.int("num_hidden_layers"))),
        vision.end("embed_vision", Linear("embedding_projection", hidden, vision.width_of(text))),
    )
    standardised = 2 * 2 * hidden.size if part.bool("standardize") else 0
    sizes = Vision(patch, merge=part.int("pooling_kernel_size"), fixed=False)
    whole = vision.with_tower(config, text, blocks, vision=sizes, buffer_bytes=standardised + 2 * 4 * (dim // 4))
    return replace(whole, untraced=(*whole.untraced, vision.NOT_RUN))
