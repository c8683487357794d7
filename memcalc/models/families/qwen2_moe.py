"""Qwen 1.5 and 2 with experts: Qwen2's attention, a softmax router, and a shared expert behind a gate.

Source: transformers, models/qwen2_moe/modeling_qwen2_moe.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Linear, RMSNorm
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("qwen2_moe",)
ARCHITECTURES = {"Qwen2MoeForCausalLM": "qwen2_moe"}


def spec(config: Config) -> ModelSpec:
    """Every n-th layer has experts; queries, keys and values have biases; some layers may see a window only.

    The model's forward makes a mask for windows even where there are none (of no keys, then).
    """
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_experts")
    hidden, norm, activation = sizes.hidden, RMSNorm(sizes.hidden), config.str("hidden_act")
    sparse = MoE(
        gate=SoftmaxRouter("gate", hidden, count, moe.choose(config, count, "num_experts_per_tok"), normalise=config.bool("norm_topk_prob"), cast_back=True),
        experts=moe.experts(config, hidden, moe.axis(config, "moe_intermediate_size"), count),
        shared=moe.swiglu(hidden, moe.axis(config, "shared_expert_intermediate_size"), activation),
        shared_gate=Linear("shared_expert_gate", hidden, Axis("1", 1)),
        shared_name="shared_expert",
        order="shared first",
    )
    dense, bias = decoder.gated_mlp(sizes, activation), config.bool("qkv_bias", default=True)

    def layer(kind: tuple[bool, int | None]) -> DecoderLayer:
        is_sparse, window = kind
        attention = decoder.attention(sizes, qkv_bias=bias, window=window)
        return DecoderLayer(input_layernorm=norm, self_attn=attention, post_attention_layernorm=norm, mlp=sparse if is_sparse else dense)

    windows = decoder.windows(config, sizes.num_layers)
    layers = decoder.layer_blocks(zip(moe.sparse_layers(config, sizes.num_layers), windows, strict=True), layer)
    whole = decoder.causal_lm(config, sizes, layers, norm=norm)
    return moe.with_active(moe.with_masks(whole, next((w for w in windows if w is not None), 0)))
