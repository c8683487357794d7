"""Baichuan and Baichuan 2: Llama with one projection for queries, keys and values; the 13B models have ALiBi positions.

Source: modeling_baichuan.py and configuration_baichuan.py, the code that comes with baichuan-inc/Baichuan2-7B-Base (`trust_remote_code`).
"""

from __future__ import annotations

from dataclasses import fields, replace

from memcalc.components import Alibi, BaichuanAttention, DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _remote as remote
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("baichuan",)
ARCHITECTURES = {"BaichuanForCausalLM": "baichuan", "BaiChuanForCausalLM": "baichuan"}


def spec(config: Config) -> ModelSpec:
    """A file without ``max_position_embeddings`` is a 13B model's."""
    sizes = text.plain_sizes(config)
    norm, mlp = RMSNorm(sizes.hidden), remote.gated(sizes, ("gate_proj", "up_proj", "down_proj"), activation=config.str("hidden_act", default="silu"))
    attention = remote.fused_heads(sizes, ("W_pack", "o_proj"))
    if config.has("max_position_embeddings"):
        layer = DecoderLayer(norm, attention, norm, mlp)
        whole = remote.causal_lm(config, sizes, (Block("layers", layer, sizes.num_layers),), norm=norm)
        return remote.presumed(whole, "transformers' Llama code with one projection for queries, keys and values")
    shared = {field.name: getattr(attention, field.name) for field in fields(attention)} | {"rotary": None, "layout": "thirds", "softmax": "model"}
    layer = DecoderLayer(norm, BaichuanAttention(**shared), norm, mlp)
    alibi = Alibi(sizes.num_heads, "shared", config.int("model_max_length"))
    whole = remote.causal_lm(config, sizes, (Block("layers", layer, sizes.num_layers),), norm=norm, alibi=alibi)
    return remote.presumed(replace(whole, max_position_embeddings=alibi.length), "Baichuan 2 13B")
