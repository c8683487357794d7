"""Norms, attention, networks and experts of Megatron-core, by the names of its arguments.

Source: megatron/core/transformer/transformer_config.py; megatron/core/models/gpt/gpt_layer_specs.py, moe_module_specs.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, Attention, GatedMLP, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.components.layer import Norm
from memcalc.components.mla import LatentAttention
from memcalc.components.moe import Experts, Groups, MoE, Router, SigmoidRouter, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.specs.model import Axis

NORMS: dict[str, type[LayerNorm | RMSNorm]] = {"LayerNorm": LayerNorm, "RMSNorm": RMSNorm}


def norm(config: Config, name: str, size: int) -> Norm:
    """A norm of the kind that is asked for.

    Raises:
        ModelError: it is not known.
    """
    kind = config.str("normalization", default="LayerNorm")
    if kind not in NORMS:
        raise config.error(f"normalization {kind!r} is not known; known: {', '.join(NORMS)}")
    return NORMS[kind](Axis(name, size))


def attention(config: Config, sizes: decoder.Sizes, rotary: Rotary | None) -> Attention | LatentAttention:
    """Grouped queries, or latent attention (``multi_latent_attention``)."""
    bias = config.bool("add_bias_linear", default=True)
    if config.bool("multi_latent_attention", default=False):
        rope = config.int("qk_pos_emb_head_dim", default=64)
        rank = config.optional_int("q_lora_rank", default=None)
        shape = latent.LatentSizes(
            common=sizes,
            q_lora=None if rank is None else Axis("q_lora_rank", rank),
            kv_lora=Axis("kv_lora_rank", config.int("kv_lora_rank", default=32)),
            nope=config.int("qk_head_dim", default=128),
            rope=rope,
            value=config.int("v_head_dim", default=128),
        )
        return latent.attention(shape, Rotary(rope), bias=bias)
    normalised = config.bool("qk_layernorm", default=False)
    head_norm = norm(config, "head_dim", sizes.head_dim) if normalised else None
    found = decoder.attention(sizes, qkv_bias=bias or config.bool("add_qkv_bias", default=False), o_bias=bias, q_norm=head_norm, k_norm=head_norm)
    return replace(found, rotary=rotary, dropout=config.float("attention_dropout", default=0.1))


def network(config: Config, hidden: Axis, width: Axis) -> MLP | GatedMLP:
    """Two linear layers, or three with a gate (``swiglu``)."""
    bias = config.bool("add_bias_linear", default=True)
    if config.bool("swiglu", default=False):
        return moe.swiglu(hidden, width, "silu", bias=bias)
    up, down = Linear("up_proj", hidden, width, bias, "column"), Linear("down_proj", width, hidden, bias, "row")
    return MLP(up, down, activation=_activation(config))


def _activation(config: Config) -> str:
    return "relu2" if config.bool("squared_relu", default=False) else "gelu"


def experts(config: Config, sizes: decoder.Sizes) -> MoE | None:
    """Experts behind their router, beside a shared one; none without ``num_experts``."""
    if config.optional_int("num_experts", default=None) is None:
        return None
    gated, count = config.bool("swiglu", default=False), moe.axis(config, "num_experts")
    width = Axis("moe_ffn_hidden_size", config.int("moe_ffn_hidden_size", default=sizes.intermediate.size))
    shared = config.optional_int("moe_shared_expert_intermediate_size", default=None)
    return MoE(
        gate=_router(config, sizes.hidden, count),
        experts=Experts(count, sizes.hidden, width, activation="silu" if gated else _activation(config), gated=gated),
        shared=None if shared is None else network(config, sizes.hidden, Axis("moe_shared_expert_intermediate_size", shared)),
        shared_gate=Linear("gate", sizes.hidden, Axis("1", 1)) if shared and config.bool("moe_shared_expert_gate", default=False) else None,
    )


def _router(config: Config, hidden: Axis, count: Axis) -> Router:
    top_k = config.int("moe_router_topk", default=2)
    if top_k > count.size:
        raise config.error(f"moe_router_topk {top_k} is more than the {count.size} experts of num_experts")
    scaled = config.optional_float("moe_router_topk_scaling_factor", default=None) is not None
    groups = config.optional_int("moe_router_num_groups", default=None)
    chosen = Groups(groups, config.int("moe_router_group_topk", default=groups)) if groups else None
    if config.str("moe_router_score_function", default="softmax") == "sigmoid":
        return SigmoidRouter("router", hidden, count, top_k, groups=chosen, normalise=top_k > 1, scaled=scaled)
    return SoftmaxRouter("router", hidden, count, top_k, groups=chosen, normalise=not config.bool("moe_router_pre_softmax", default=False), scaled=scaled)
