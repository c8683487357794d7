"""OLMoE: norms over all queries and all keys, a softmax router, many small experts.

Source: transformers, models/olmoe/modeling_olmoe.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import RMSNorm
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("olmoe",)
ARCHITECTURES = {"OlmoeForCausalLM": "olmoe"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts; queries, keys and values may be clamped in place (``clip_qkv``)."""
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_experts", "num_local_experts")
    norm, bias = RMSNorm(sizes.hidden), config.bool("attention_bias", default=False)
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=RMSNorm(sizes.queries), k_norm=RMSNorm(sizes.keys))
    layers = moe.layers(
        [True] * sizes.num_layers,
        norm=norm,
        self_attn=replace(attention, clamped=config.optional_float("clip_qkv", default=None) is not None),
        sparse=MoE(
            gate=SoftmaxRouter(
                "gate",
                sizes.hidden,
                count,
                moe.choose(config, count, "num_experts_per_tok"),
                normalise=config.bool("norm_topk_prob", default=False),
                cast_back=True,
            ),
            experts=moe.experts(config, sizes.hidden, sizes.intermediate, count),
        ),
        dense=None,
    )
    return moe.with_active(decoder.causal_lm(config, sizes, layers, norm=norm))
