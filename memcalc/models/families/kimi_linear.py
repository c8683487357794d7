"""Kimi Linear: delta attention with a gate for each channel, latent attention in every fourth layer, experts; counted, not run.

Source: transformers, models/kimi_linear/modeling_kimi_linear.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import RMSNorm, Rotary
from memcalc.components.moe import num_inactive
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.specs.model import Axis, Component, ModelSpec, Weight

MODEL_TYPES = ("kimi_linear",)
ARCHITECTURES = {"KimiLinearForCausalLM": "kimi_linear"}


def spec(config: Config) -> ModelSpec:
    """The first layer is dense; files list the kinds of layers in ``linear_attn_config``, counted from 1."""
    sizes = latent.read_sizes(config)
    common, norm = sizes.common, RMSNorm(sizes.common.hidden)
    mixers: dict[str, Component] = {"full_attention": latent.attention(sizes, Rotary(sizes.rope), bias=False), "linear_attention": delta(config, common.hidden)}
    kinds = config.kinds("layer_types", known=tuple(mixers), count=common.num_layers)
    sparse, dense = experts(config, common.hidden), decoder.gated_mlp(common, config.str("hidden_act"))
    first = config.int("first_k_dense_replace", default=1, minimum=0)

    def layer(kind: tuple[str, bool]) -> Component:
        mixer, is_sparse = kind
        network = sparse if is_sparse else dense
        return Parts((("input_layernorm", norm), ("self_attn", mixers[mixer]), ("post_attention_layernorm", norm), ("mlp", network)))

    layers = decoder.layer_blocks(zip(kinds, (i >= first for i in range(common.num_layers)), strict=True), layer)
    whole = counted.model(config, common, layers, what="delta attention with a gate for each channel", norm=norm)
    inactive = sum(num_inactive(sparse) for i in range(common.num_layers) if i >= first)
    return moe.with_buffers(replace(whole, active_params=whole.num_params - inactive), correction_bytes(sparse) * (common.num_layers - first))


def delta(config: Config, hidden: Axis) -> Parts:
    """Queries, keys and values through a convolution; gates of low rank."""
    heads, dim = config.int("linear_num_heads"), config.int("linear_head_dim")
    width, narrow = Axis("linear_num_heads * linear_head_dim", heads * dim), Axis("linear_head_dim", dim)
    kernel, one = Axis("linear_conv_kernel_dim", config.int("linear_conv_kernel_dim")), Axis("1", 1)
    conv = Parts((), (Weight("weight", (Axis("3 * linear_num_heads * linear_head_dim", 3 * width.size), one, kernel)),))
    decay = Weight("A_log", (one, one, Axis("linear_num_heads", heads), one))
    forget = Parts((*counted.linears(hidden, narrow, "f_a_proj"), *counted.linears(narrow, width, "f_b_proj")), (*counted.vectors(width, "dt_bias"), decay))
    gates = (
        *counted.linears(hidden, Axis("linear_num_heads", heads), "b_proj"),
        *counted.linears(hidden, narrow, "g_a_proj"),
        *counted.linears(narrow, width, "g_b_proj"),
    )
    projections = (*counted.linears(hidden, width, "q_proj", "k_proj", "v_proj"), *counted.linears(width, hidden, "o_proj"))
    return Parts((*projections, ("conv1d", conv), ("forget_gate", forget), *gates, ("o_norm", RMSNorm(narrow))))
