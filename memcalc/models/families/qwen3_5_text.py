"""Qwen 3.5, dense, without its vision tower: gated delta networks and gated attention.

Source: transformers, models/qwen3_5/modeling_qwen3_5.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _delta as delta
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("qwen3_5_text",)
ARCHITECTURES = {"Qwen3_5ForCausalLM": "qwen3_5_text"}


def spec(config: Config) -> ModelSpec:
    """Three layers of linear attention, then one of full attention, as ``layer_types`` says; SwiGLU in each."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    turned = delta.rotary(config, sizes.head_dim, planes=True)
    mixers, mlp = delta.mixers(config, sizes, turned, fused=False), decoder.gated_mlp(sizes, config.str("hidden_act"))

    def layer(kind: str) -> DecoderLayer:
        return delta.layer(sizes, mixers[kind], mlp)

    return delta.model(config, sizes, decoder.layer_blocks(delta.kinds(config), layer), turned)
