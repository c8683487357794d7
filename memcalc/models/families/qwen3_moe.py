"""Qwen 3 with experts: Qwen3's attention and a softmax router.

Source: transformers, models/qwen3_moe/modeling_qwen3_moe.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("qwen3_moe",)
ARCHITECTURES = {"Qwen3MoeForCausalLM": "qwen3_moe"}


def spec(config: Config) -> ModelSpec:
    """Every n-th layer has experts; queries and keys have a norm on each head; a window, when there is one, is every layer's."""
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_experts", "num_local_experts")
    hidden, norm, head_norm = sizes.hidden, RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim))
    bias = config.bool("attention_bias", default=False)
    window = config.optional_int("sliding_window") if config.bool("use_sliding_window") else None
    layers = moe.layers(
        moe.sparse_layers(config, sizes.num_layers),
        norm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm, window=window),
        sparse=MoE(
            gate=SoftmaxRouter(
                "gate", hidden, count, moe.choose(config, count, "num_experts_per_tok"), normalise=config.bool("norm_topk_prob"), cast_back=True
            ),
            experts=moe.experts(config, hidden, moe.axis(config, "moe_intermediate_size"), count),
        ),
        dense=decoder.gated_mlp(sizes, config.str("hidden_act")),
    )
    return moe.with_active(decoder.causal_lm(config, sizes, layers, norm=norm))
