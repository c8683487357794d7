"""GPT as Megatron-core builds it from flags: the keys are the names of its arguments, and what is left out is as there.

Source: megatron/training/arguments.py; megatron/core/transformer/transformer_config.py; megatron/core/models/gpt/gpt_layer_specs.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, Attention, DecoderLayer, Embedding, GatedMLP, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.components.layer import Norm
from memcalc.components.mla import LatentAttention
from memcalc.components.moe import Experts, Groups, MoE, Router, SigmoidRouter, SoftmaxRouter
from memcalc.errors import InputError
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("megatron_gpt",)
ARCHITECTURES: dict[str, str] = {}
POSITIONS = {"learned_absolute": False, "rope": True, "yarn": True, "mrope": True, "none": False}
"""Kinds of positions, and whether they are rotary."""
NORMS: dict[str, type[LayerNorm | RMSNorm]] = {"LayerNorm": LayerNorm, "RMSNorm": RMSNorm}
SWIGLU_ROUNDING = 64
"""To a multiple of this a gated network is two thirds as wide as one without gate (arguments.py, validate_args)."""


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of any of Megatron's attentions, networks and experts.

    Raises:
        ModelError: a size is missing or impossible, or a kind is not known.
    """
    sizes, norm = _sizes(config), _norm(config, "hidden_size", config.int("hidden_size"))
    positions = config.str("position_embedding_type", default="learned_absolute")
    if positions not in POSITIONS:
        raise config.error(f"position_embedding_type {positions!r} is not known; known: {', '.join(POSITIONS)}")
    turned = int(sizes.head_dim * config.float("rotary_percent", default=1.0)) if POSITIONS[positions] else 0
    rotary = Rotary(turned) if turned else None
    dropout, tied = config.float("hidden_dropout", default=0.1), not config.bool("untie_embeddings_and_output_weights", default=False)
    dense, sparse, self_attn = _network(config, sizes.hidden, sizes.intermediate), _experts(config, sizes), _attention(config, sizes, rotary)

    def layer(mlp: MLP | GatedMLP | MoE) -> DecoderLayer:
        return DecoderLayer(input_layernorm=norm, self_attn=self_attn, post_attention_layernorm=norm, mlp=mlp, dropout=dropout)

    kinds = (False,) * sizes.num_layers if sparse is None else tuple(bool(kind) for kind in config.ints("moe_layers"))
    if len(kinds) != sizes.num_layers:
        raise config.error(f"moe_layers names {len(kinds)} layers of {sizes.num_layers}")
    whole = text.language_model(
        config,
        sizes,
        decoder.layer_blocks([sparse if sparse is not None and kind else dense for kind in kinds], layer),
        embedding=Embedding(
            sizes.vocab,
            sizes.hidden,
            rotary=rotary,
            positions=config.int("max_position_embeddings") if positions == "learned_absolute" else 0,
            tied=tied,
            dropout=dropout,
        ),
        norm=norm,
    )
    return moe.with_active(whole) if sparse is not None else whole


# ---------------------------------------------------------------------- inside
def _sizes(config: Config) -> decoder.Sizes:
    hidden, heads = config.int("hidden_size"), config.int("num_attention_heads")
    groups = config.int("num_query_groups", default=heads)
    if heads % groups:
        raise config.error(f"num_attention_heads {heads} is not a multiple of num_query_groups {groups}")
    width = 4 * hidden if not config.bool("swiglu", default=False) else 4 * hidden * 2 // 3 // SWIGLU_ROUNDING * SWIGLU_ROUNDING
    channels = config.optional_int("kv_channels", default=None) or text.whole_heads(config, hidden, heads)
    return text.axes(
        hidden=hidden,
        intermediate=config.int("ffn_hidden_size", default=width),
        vocab=_vocabulary(config),
        layers=config.int("num_layers"),
        heads=heads,
        kv_heads=groups,
        head_dim=channels,
    )


def _vocabulary(config: Config) -> int:
    """As said, or of the model whose tokenizer is named."""
    if config.has("vocab_size") or not config.has("tokenizer_model"):
        return config.int("vocab_size")
    from memcalc.models.read import read_model

    name = config.str("tokenizer_model")
    try:
        found = read_model(name).vocab_size
    except InputError as error:
        raise config.error(f"vocab_size is that of the tokenizer of {name}, which is not known ({error}); give vocab_size") from None
    config.assumed.setdefault(f"the model {name}, whose tokenizer it is", []).append(f"vocab_size {found}")
    return found


def _norm(config: Config, name: str, size: int) -> Norm:
    kind = config.str("normalization", default="LayerNorm")
    if kind not in NORMS:
        raise config.error(f"normalization {kind!r} is not known; known: {', '.join(NORMS)}")
    return NORMS[kind](Axis(name, size))


def _attention(config: Config, sizes: decoder.Sizes, rotary: Rotary | None) -> Attention | LatentAttention:
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
    head_norm = _norm(config, "head_dim", sizes.head_dim) if normalised else None
    found = decoder.attention(sizes, qkv_bias=bias or config.bool("add_qkv_bias", default=False), o_bias=bias, q_norm=head_norm, k_norm=head_norm)
    return replace(found, rotary=rotary, dropout=config.float("attention_dropout", default=0.1))


def _network(config: Config, hidden: Axis, width: Axis) -> MLP | GatedMLP:
    bias = config.bool("add_bias_linear", default=True)
    if config.bool("swiglu", default=False):
        return moe.swiglu(hidden, width, "silu", bias=bias)
    up, down = Linear("up_proj", hidden, width, bias, "column"), Linear("down_proj", width, hidden, bias, "row")
    return MLP(up, down, activation=_activation(config))


def _activation(config: Config) -> str:
    return "relu2" if config.bool("squared_relu", default=False) else "gelu"


def _experts(config: Config, sizes: decoder.Sizes) -> MoE | None:
    if config.optional_int("num_experts", default=None) is None:
        return None
    gated, count = config.bool("swiglu", default=False), moe.axis(config, "num_experts")
    width = Axis("moe_ffn_hidden_size", config.int("moe_ffn_hidden_size", default=sizes.intermediate.size))
    shared = config.optional_int("moe_shared_expert_intermediate_size", default=None)
    return MoE(
        gate=_router(config, sizes.hidden, count),
        experts=Experts(count, sizes.hidden, width, activation="silu" if gated else _activation(config), gated=gated),
        shared=None if shared is None else _network(config, sizes.hidden, Axis("moe_shared_expert_intermediate_size", shared)),
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
