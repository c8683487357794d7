"""Qwen 3.5 with experts, without its vision tower: gated delta networks and gated attention, experts in every layer.

Source: transformers, models/qwen3_5_moe/modeling_qwen3_5_moe.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _delta as delta
from memcalc.models.families import _moe as moe
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("qwen3_5_moe_text",)
ARCHITECTURES = {"Qwen3_5MoeForCausalLM": "qwen3_5_moe_text"}


def spec(config: Config) -> ModelSpec:
    """Three layers of linear attention, then one of full attention, as ``layer_types`` says; a shared expert behind a gate beside the routed ones."""
    sizes = delta.sizes(config)
    turned = delta.rotary(config, sizes.head_dim, planes=True)
    mixers, sparse = delta.mixers(config, sizes, turned, fused=False), delta.experts(config, sizes.hidden)

    def layer(kind: str) -> DecoderLayer:
        return delta.layer(sizes, mixers[kind], sparse)

    return moe.with_active(delta.model(config, sizes, decoder.layer_blocks(delta.kinds(config), layer), turned))
