"""Qwen 2.5-VL: Qwen 2 with positions in three planes, and a tower most of whose layers see windows.

Source: transformers, models/qwen2_5_vl/modeling_qwen2_5_vl.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.components.vision import Join, PackedEmbedding
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _packed as packed
from memcalc.models.families import _vision as vision
from memcalc.models.families import qwen2
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("qwen2_5_vl", "qwen2_5_vl_text")
ARCHITECTURES = {"Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl"}


def spec(config: Config) -> ModelSpec:
    """The whole, or its text model alone; older files hold the text's keys at the top."""
    if config.model_type == "qwen2_5_vl_text":
        return packed.with_planes(qwen2.spec(config), "joined")
    text, part = vision.text_model(config, flat="qwen2_5_vl_text"), config.sub("vision_config")
    front, blocks = tower(part)
    return vision.with_tower(config, text, blocks, vision=packed.sizes_of(part), join=Join(listed=True), buffer_bytes=packed.buffer_bytes(front))


def tower(part: Config) -> tuple[PackedEmbedding, tuple[Block, ...]]:
    """Its front, and all of it: most layers see windows, and patches stand by window and are put back into order."""
    sizes, depth, heads = packed.sizes_of(part), part.int("depth", "num_hidden_layers"), part.int("num_heads", "num_attention_heads")
    hidden, intermediate = Axis("hidden_size", part.int("hidden_size")), Axis("intermediate_size", part.int("intermediate_size"))
    norm, mlp = RMSNorm(hidden), moe.swiglu(hidden, intermediate, part.str("hidden_act"), bias=True)
    side, whole = part.int("window_size") // sizes.merge // sizes.patch * sizes.merge, set(part.ints("fullatt_block_indexes"))

    def layer(seen: int) -> DecoderLayer:
        return packed.layer(hidden, heads, mlp, norm, side=seen)

    front = packed.embedding(part, sizes, hidden, heads, bias=False, style="qwen2_5_vl")
    merger = packed.merger(norm, sizes, Axis("out_hidden_size", part.int("out_hidden_size")), names=("mlp/0", "mlp/2"), norm_name="ln_q", reordered=True)
    return front, (
        vision.end("visual", front),
        *vision.layers(
            *((b.path, b.module, b.repeat) for b in decoder.layer_blocks((0 if i in whole else side for i in range(depth)), layer, "visual/blocks"))
        ),
        vision.end("visual/merger", merger),
    )
