"""Kimi K2.5 and K2.6: Kimi K2 beside MoonViT, which takes pictures and films of any size; the tower is counted, not run.

Source: transformers, models/kimi_k25/modeling_kimi_k25.py. Moonshot's own files name the tower's sizes otherwise.
The forward pass also holds a copy of the ids and which of them stand for images, nine bytes a token, which is left out.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm
from memcalc.components.vision import Parts, PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec, Weight
from memcalc.specs.vision import Vision

MODEL_TYPES = ("kimi_k25",)
ARCHITECTURES = {"Kimi_K25ForConditionalGeneration": "kimi_k25", "KimiK25ForConditionalGeneration": "kimi_k25"}

FP32 = 4
QUARTERS = 4
"""Heights and widths turn a pair of numbers each, so that a head has a quarter as many frequencies as numbers."""


def spec(config: Config) -> ModelSpec:
    """The text model is DeepSeek V3's in shape; its tower's positions are a table of rows and columns."""
    text, part = vision.text_model(config), config.sub("vision_config")
    hidden = Axis("hidden_size", part.int("vt_hidden_size", "hidden_size"))
    heads, merge = part.int("vt_num_attention_heads", "num_attention_heads"), part.ints("merge_kernel_size", minimum=1)
    if len(merge) != 2 or merge[0] != merge[1]:
        raise config.error(f"vision_config.merge_kernel_size is {list(merge)}; a square was expected")
    vision.whole_heads(config, hidden.size, heads)
    sizes = Vision(patch=part.int("patch_size"), merge=merge[0], packed=True, fixed=False, flat=True)
    rows, columns = (Axis(f"pos_emb_{side}", part.int(f"init_pos_emb_{side}", f"pos_emb_{side}")) for side in ("height", "width"))
    front = Parts(
        (("patch_embed", PatchConv("proj", hidden, sizes.channels, sizes.patch, bias=True)),),
        (Weight("patch_embed/pos_emb/position_embeddings", (rows, columns, hidden)),),
    )
    inner = Axis("intermediate_size", part.int("vt_intermediate_size", "intermediate_size"))
    layer = vision.image_layer(hidden, inner, heads, out="proj", activation="gelu_pytorch_tanh")
    blocks = (
        vision.end("vision_tower", front),
        *vision.layers(("vision_tower/layers", layer, part.int("vt_num_hidden_layers", "num_hidden_layers"))),
        vision.end("vision_tower/final_layernorm", LayerNorm(hidden)),
        vision.end("mm_projector", projector(config, hidden, merge[0], vision.width_of(text))),
    )
    frames = part.int("init_pos_emb_time", "pos_emb_time")
    numbers = (frames + 1) * hidden.size + 2 * (hidden.size // heads // QUARTERS)
    whole = vision.with_tower(config, text, blocks, vision=sizes, buffer_bytes=FP32 * numbers)
    return replace(whole, untraced=(*whole.untraced, vision.NOT_RUN))


def projector(config: Config, hidden: Axis, merge: int, width: Axis) -> Parts:
    """A norm of each patch, and two layers over neighbours that are joined."""
    part = config.sub("vision_config")
    size = part.int("mm_hidden_size") if part.has("mm_hidden_size") else config.int("projection_hidden_size")
    normed = Axis("projection_hidden_size", size)
    joined = Axis("hidden_size * merge_kernel_size²", hidden.size * merge * merge)
    layers = (*counted.linears(joined, joined, "in_proj", bias=True), *counted.linears(joined, width, "out_proj", bias=True))
    return Parts((("pre_norm", LayerNorm(normed)), *layers))
