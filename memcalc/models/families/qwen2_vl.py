"""Qwen 2-VL: Qwen 2 with positions in three planes, and a tower of LayerNorms that sees images of any size.

Source: transformers, models/qwen2_vl/modeling_qwen2_vl.py.
"""

from __future__ import annotations

from memcalc.components import LayerNorm
from memcalc.components.vision import Join
from memcalc.models.config import Config
from memcalc.models.families import _packed as packed
from memcalc.models.families import _vision as vision
from memcalc.models.families import qwen2
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("qwen2_vl", "qwen2_vl_text")
ARCHITECTURES = {"Qwen2VLForConditionalGeneration": "qwen2_vl"}


def spec(config: Config) -> ModelSpec:
    """The whole, or its text model alone; older files hold the text's keys at the top."""
    if config.model_type == "qwen2_vl_text":
        return packed.with_planes(qwen2.spec(config), "joined")
    text, part = vision.text_model(config, flat="qwen2_vl_text"), config.sub("vision_config")
    sizes, heads = packed.sizes_of(part), part.int("num_heads", "num_attention_heads")
    hidden, out = Axis("embed_dim", part.int("embed_dim")), Axis("hidden_size", part.int("hidden_size"))
    norm, intermediate = LayerNorm(hidden), Axis("embed_dim * mlp_ratio", int(hidden.size * part.float("mlp_ratio")))
    mlp = vision.two_layers(("fc1", "fc2"), (hidden, intermediate, hidden), part.str("hidden_act"))
    front = packed.embedding(part, sizes, hidden, heads, bias=False, style="qwen2_vl")
    blocks = (
        vision.end("visual", front),
        *vision.layers(("visual/blocks", packed.layer(hidden, heads, mlp, norm), part.int("depth", "num_hidden_layers"))),
        vision.end("visual/merger", packed.merger(norm, sizes, out, names=("mlp/0", "mlp/2"), norm_name="ln_q")),
    )
    return vision.with_tower(config, text, blocks, vision=sizes, join=Join(listed=True), buffer_bytes=packed.buffer_bytes(front))
