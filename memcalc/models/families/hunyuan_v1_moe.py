"""Hunyuan V1 with experts: norms on heads after they are turned, a softmax router in float32, one shared expert.

Source: transformers, models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import RMSNorm
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("hunyuan_v1_moe",)
ARCHITECTURES = {"HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts, as wide as the shared one.

    Raises:
        ModelError: numbers of experts that differ by layer, of which transformers' own code only takes those per token.
    """
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_experts", "num_local_experts")
    top_k = config.get("moe_topk", config.get("num_experts_per_tok"))
    if isinstance(top_k, list):
        raise config.error("moe_topk is a list; only one number for all layers can be counted")
    norm, head_norm, bias = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim)), config.bool("attention_bias", default=False)
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm)
    layers = moe.layers(
        [True] * sizes.num_layers,
        norm=norm,
        self_attn=replace(attention, norm_after_rotary=True),
        sparse=MoE(
            gate=SoftmaxRouter(
                "gate", sizes.hidden, count, moe.choose(config, count, "moe_topk", "num_experts_per_tok"), dtype="float32", inner="wg", normalise=True
            ),
            experts=moe.experts(config, sizes.hidden, sizes.intermediate, count),
            shared=moe.swiglu(sizes.hidden, sizes.intermediate, config.str("hidden_act")),
            shared_name="shared_mlp",
            order="shared first",
        ),
        dense=None,
    )
    return moe.with_active(decoder.causal_lm(config, sizes, layers, norm=norm))
