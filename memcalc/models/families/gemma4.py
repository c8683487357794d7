"""Gemma 4 with images: its text model, a tower with rotary positions on two axes, an average over neighbouring patches.

Source: transformers, models/gemma4/modeling_gemma4.py. Its tower for sounds is counted, and the one for images too, where its linear layers have bounds.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, Linear
from memcalc.components.gemma4 import Gemma4Norm
from memcalc.components.gemma4_vision import Gemma4Patches, Gemma4Pool, Gemma4VisionAttention, Gemma4VisionLayer
from memcalc.components.vision import Join
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _moe as moe
from memcalc.models.families import _sound as sound
from memcalc.models.families import _vision as vision
from memcalc.models.families._gemma_sound import conformer, subsample
from memcalc.specs.model import Axis, ModelSpec
from memcalc.specs.vision import Vision

LINEARS, SOUND_LINEARS = 7, 10
"""Linear layers with bounds in a layer of each tower."""

BOUND_BYTES = 4 * 2
"""Of one of them, in bf16."""

FREQUENCY_BYTES, CAP_BYTES, STANDARD_BYTES = 4, 2, 2 * 2
"""Other buffers: frequencies of positions in fp32 (twice for images), a number in each layer that hears, two vectors that pixels are standardised with."""

MODEL_TYPES = ("gemma4",)
ARCHITECTURES = {"Gemma4ForConditionalGeneration": "gemma4"}


def spec(config: Config) -> ModelSpec:
    """The tower runs on square images, without padding."""
    text, part = vision.text_model(config), config.sub("vision_config")
    table = text.blocks[0].module
    if isinstance(table, Embedding) and table.inputs is not None:
        table = replace(table, inputs=replace(table.inputs, outer="rows and embeddings"))
        text = replace(text, blocks=(replace(text.blocks[0], module=table), *text.blocks[1:]))
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
    buffers = STANDARD_BYTES * int(hidden.size) * standardised + 2 * FREQUENCY_BYTES * (dim // 4)
    join = Join(listed=True, masks="windows" if both_ways else "")
    whole = vision.with_tower(config, text, blocks, vision=sizes, join=join, buffer_bytes=buffers + bounds(part, LINEARS * part.int("num_hidden_layers")))
    if part.bool("use_clipped_linears"):
        whole = replace(whole, untraced=(*whole.untraced, vision.NOT_RUN))
    return with_sounds(whole, config.sub("audio_config"), vision.width_of(text)) if config.has("audio_config") else whole


def bounds(part: Config, count: int) -> int:
    """Linear layers with bounds have four numbers each, which are buffers in the model's dtype."""
    return BOUND_BYTES * count * part.bool("use_clipped_linears")


def with_sounds(whole: ModelSpec, part: Config, width: Axis) -> ModelSpec:
    """The model with its tower for sounds."""
    hidden, layers, heads = Axis("hidden_size", part.int("hidden_size")), part.int("num_hidden_layers"), part.int("num_attention_heads")
    out = Axis("output_proj_dims", part.int("output_proj_dims"))
    front = subsample(hidden, part.ints("subsampling_conv_channels"), part.ints("subsampling_conv_channels")[0], names=("layer0", "layer1"))
    whole = sound.with_ears(
        whole,
        ("audio_tower/subsample_conv_projection", front, 1),
        ("audio_tower/layers", conformer(part, hidden, heads=heads, kernel=part.int("conv_kernel_size"), four=True), layers),
        ("audio_tower", counted.linears(hidden, out, "output_proj", bias=True), 1),
        ("embed_audio", counted.linears(out, width, "embedding_projection"), 1),
    )
    places = FREQUENCY_BYTES * (hidden.size // 2) + layers * CAP_BYTES
    return replace(whole, buffer_bytes=whole.buffer_bytes + places + bounds(part, SOUND_LINEARS * layers))
