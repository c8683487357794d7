"""gpt-oss: attention with sinks and, in every other layer, a window; experts with biases behind clamped gates.

Source: transformers, models/gpt_oss/modeling_gpt_oss.py, which has no path for the sdpa kernel.
"""

from __future__ import annotations

from dataclasses import fields, replace

from memcalc.components import DecoderLayer, RMSNorm, Rotary
from memcalc.components.attention_sinks import SinkAttention
from memcalc.components.moe import Experts, MoE, TopKRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("gpt_oss",)
ARCHITECTURES = {"GptOssForCausalLM": "gpt_oss"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts, whose weights are stored (in, out) with gate and up interleaved."""
    sizes, count = decoder.read_sizes(config, head_dim_follows=False), moe.axis(config, "num_local_experts", "num_experts")
    norm, bias, rotary = RMSNorm(sizes.hidden, "fp32_scale"), config.bool("attention_bias", default=True), Rotary(sizes.head_dim, "halves")
    sparse = MoE(
        gate=TopKRouter("router", sizes.hidden, count, moe.choose(config, count, "num_experts_per_tok"), bias=True),
        experts=Experts(count, sizes.hidden, sizes.intermediate, activation="clamped", bias=True, transposed=True),
    )

    def layer(window: int | None) -> DecoderLayer:
        plain = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary, window=window)
        attention = SinkAttention(**{field.name: getattr(plain, field.name) for field in fields(plain)})
        return DecoderLayer(input_layernorm=norm, self_attn=replace(attention, sinks=True), post_attention_layernorm=norm, mlp=sparse)

    window = config.optional_int("sliding_window")
    layers = decoder.layer_blocks(text.layer_windows(config, sizes.num_layers, pattern=2, window=window), layer)
    whole = moe.with_masks(decoder.causal_lm(config, sizes, layers, norm=norm, rotary=rotary), None, window)
    return moe.with_active(replace(whole, attentions=("eager", "flash_attention_2")))
