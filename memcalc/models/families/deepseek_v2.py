"""DeepSeek V2 and V2-Lite: latent attention, a softmax router in float32, and shared experts.

Source: transformers, models/deepseek_v2/modeling_deepseek_v2.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm, Rotary
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("deepseek_v2",)
ARCHITECTURES = {"DeepseekV2ForCausalLM": "deepseek_v2"}


def spec(config: Config) -> ModelSpec:
    """The first layers are dense; the choice may be limited to groups of experts."""
    sizes, count = latent.read_sizes(config), moe.axis(config, "n_routed_experts", "num_experts")
    hidden, norm, rotary = sizes.common.hidden, RMSNorm(sizes.common.hidden), Rotary(sizes.rope, "complex")
    activation, width = config.str("hidden_act"), moe.axis(config, "moe_intermediate_size")
    method = config.str("topk_method")
    if method not in ("greedy", "group_limited_greedy"):
        raise config.error(f"topk_method is {method!r}; transformers' code knows greedy and group_limited_greedy")
    layers = moe.layers(
        moe.after_dense(config, sizes.common.num_layers),
        norm=norm,
        self_attn=latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False)),
        sparse=MoE(
            gate=SoftmaxRouter(
                "gate",
                hidden,
                count,
                moe.choose(config, count, "num_experts_per_tok"),
                dtype="float32",
                scaled=True,
                groups=latent.groups(config, count) if method == "group_limited_greedy" else None,
            ),
            experts=moe.experts(config, hidden, width, count),
            shared=moe.swiglu(
                hidden,
                Axis("n_shared_experts * moe_intermediate_size", config.int("n_shared_experts") * width.size),
                activation,
                bias=config.bool("mlp_bias", default=False),
            ),
        ),
        dense=decoder.gated_mlp(sizes.common, activation, bias=config.bool("mlp_bias", default=False)),
    )
    return moe.with_active(decoder.causal_lm(config, sizes.common, layers, norm=norm, rotary=rotary))
