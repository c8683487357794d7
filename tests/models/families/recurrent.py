"""Random small configurations of recurrent families and of those with two stacks, as transformers would accept them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

FAMILIES = (
    "mamba",
    "falcon_mamba",
    "mamba2",
    "jamba",
    "nemotron_h",
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "lfm2",
    "lfm2_moe",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "t5",
    "mt5",
    "umt5",
    "bart",
    "mbart",
    "pegasus",
    "marian",
)

TWO_STACKS = FAMILIES[-7:]

ATTENTION_FREE = ("mamba", "falcon_mamba", "mamba2")

EXPERTS = ("jamba", "nemotron_h", "granitemoehybrid", "lfm2_moe", "qwen3_next", "qwen3_5_moe_text")


@st.composite
def configs(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """A config.json of a small model whose sizes go together.

    Args:
        draw: of hypothesis.
        model_type: one of `FAMILIES`.
    """
    common = {"model_type": model_type, "vocab_size": draw(st.integers(2, 90)), "tie_word_embeddings": draw(st.booleans())}
    if model_type in ("t5", "mt5", "umt5"):
        return common | t5(draw)
    if model_type in TWO_STACKS:
        return {**common, "tie_word_embeddings": True, "pad_token_id": 0} | bart(draw)
    hidden = draw(st.integers(1, 8)) * 8
    common |= {"hidden_size": hidden, "num_hidden_layers": draw(st.integers(1, 4)), "pad_token_id": 0}
    makers = {
        "jamba": jamba,
        "nemotron_h": nemotron,
        "mamba2": mamba2,
        "mamba": mamba,
        "falcon_mamba": mamba,
        "bamba": bamba,
        "falcon_h1": falcon,
        "granitemoehybrid": granite,
        "lfm2": short_convolutions,
        "lfm2_moe": short_convolutions,
    }
    return common | makers.get(model_type, delta)(draw, common)


def mamba(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Channels, states and time steps of any size."""
    return {
        "expand": draw(st.integers(1, 3)),
        "state_size": draw(st.integers(1, 9)),
        "conv_kernel": draw(st.integers(1, 5)),
        "time_step_rank": draw(st.sampled_from(("auto", 1, 5))),
        "use_bias": draw(st.booleans()),
        "use_conv_bias": draw(st.booleans()),
        "residual_in_fp32": draw(st.booleans()),
    }


def mamba2(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Heads that make up twice the hidden size."""
    heads, groups = draw(st.sampled_from(((2, 1), (4, 2), (8, 4))))
    return {
        "expand": 2,
        "num_heads": heads,
        "head_dim": 2 * common["hidden_size"] // heads,
        "n_groups": groups,
        "state_size": draw(st.integers(1, 9)),
        "conv_kernel": draw(st.integers(1, 5)),
        "chunk_size": draw(st.sampled_from((4, 16))),
        "use_bias": draw(st.booleans()),
        "use_conv_bias": draw(st.booleans()),
        "residual_in_fp32": draw(st.booleans()),
    }


def heads(draw: st.DrawFn) -> dict[str, Any]:
    """Grouped queries; heads need not share the hidden size."""
    kv_heads = draw(st.integers(1, 3))
    return {"num_key_value_heads": kv_heads, "num_attention_heads": kv_heads * draw(st.integers(1, 3)), "head_dim": 8}


def jamba(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Attention and experts in any rhythm."""
    attention, expert = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return {
        **heads(draw),
        "intermediate_size": 8 * draw(st.integers(1, 4)),
        "num_experts": draw(st.integers(1, 5)),
        "num_experts_per_tok": 1,
        "attn_layer_period": attention,
        "attn_layer_offset": draw(st.integers(0, attention - 1)),
        "expert_layer_period": expert,
        "expert_layer_offset": draw(st.integers(0, expert - 1)),
        "mamba_d_state": draw(st.integers(1, 9)),
        "mamba_d_conv": draw(st.integers(1, 5)),
        "mamba_dt_rank": draw(st.sampled_from(("auto", 3))),
        "mamba_proj_bias": draw(st.booleans()),
        "mamba_conv_bias": draw(st.booleans()),
    }


def nemotron(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Any pattern of layers, experts on the hidden size or on a latent."""
    groups = draw(st.integers(1, 3))
    return {
        **heads(draw),
        "hybrid_override_pattern": "".join(draw(st.lists(st.sampled_from("ME*-"), min_size=1, max_size=5))),
        "intermediate_size": 8 * draw(st.integers(1, 4)),
        "mamba_num_heads": groups * draw(st.integers(1, 3)),
        "mamba_head_dim": 8,
        "n_groups": groups,
        "ssm_state_size": draw(st.integers(1, 9)),
        "chunk_size": draw(st.sampled_from((4, 16))),
        "n_routed_experts": 4,
        "num_experts_per_tok": draw(st.integers(1, 4)),
        "moe_intermediate_size": 8 * draw(st.integers(1, 3)),
        "moe_shared_expert_intermediate_size": 8 * draw(st.integers(1, 3)),
        "moe_latent_size": draw(st.sampled_from((None, 16))),
        "mlp_bias": draw(st.booleans()),
    }


def bamba(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Attention in any layers; channels of heads that make up twice the hidden size."""
    mixer_heads, groups = draw(st.sampled_from(((2, 1), (4, 2), (8, 4))))
    return {
        **heads(draw),
        "intermediate_size": 8 * draw(st.integers(1, 4)),
        "attn_layer_indices": draw(st.lists(st.integers(0, common["num_hidden_layers"] - 1), unique=True)),
        "mamba_n_heads": mixer_heads,
        "mamba_d_head": draw(st.sampled_from(("auto", 2 * common["hidden_size"] // mixer_heads))),
        "mamba_n_groups": groups,
        "mamba_d_state": draw(st.integers(1, 9)),
        "mamba_d_conv": draw(st.integers(1, 5)),
        "mamba_chunk_size": draw(st.sampled_from((4, 16))),
        "mamba_proj_bias": draw(st.booleans()),
        "mamba_conv_bias": draw(st.booleans()),
        "attention_bias": draw(st.booleans()),
        "mlp_bias": draw(st.booleans()),
    }


def falcon(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Bamba's mixer beside attention in every layer, as wide as it likes; with a norm or without."""
    made = bamba(draw, common)
    del made["attn_layer_indices"]
    head_dim = 4 * made["mamba_n_groups"] * draw(st.integers(1, 3))
    made |= {key: draw(st.booleans()) for key in ("projectors_bias", "mamba_rms_norm", "mamba_norm_before_gate")}
    return made | {"mamba_d_head": head_dim, "mamba_d_ssm": head_dim * made["mamba_n_heads"]}


def granite(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """As Bamba's mixers; experts or none, positions or none."""
    layers = common["num_hidden_layers"]
    made = bamba(draw, common)
    del made["attn_layer_indices"], made["mlp_bias"]
    return made | {
        "layer_types": draw(st.lists(st.sampled_from(("linear_attention", "full_attention")), min_size=layers, max_size=layers)),
        "position_embedding_type": draw(st.sampled_from(("rope", "nope"))),
        "num_local_experts": draw(st.sampled_from((0, 4))),
        "num_experts_per_tok": draw(st.integers(1, 4)),
        "shared_intermediate_size": 8 * draw(st.integers(1, 4)),
    }


def short_convolutions(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Convolutions and attention in any order; widths that the model rounds up, or not."""
    layers = common["num_hidden_layers"]
    made: dict[str, Any] = {
        **heads(draw),
        "conv_L_cache": draw(st.integers(1, 5)),
        "conv_bias": draw(st.booleans()),
        "layer_types": draw(st.lists(st.sampled_from(("conv", "full_attention")), min_size=layers, max_size=layers)),
        "intermediate_size": draw(st.integers(3, 80)),
    }
    if common["model_type"] == "lfm2":
        rounded = {"block_multiple_of": draw(st.integers(1, 9)), "block_ffn_dim_multiplier": draw(st.sampled_from((1.0, 1.3)))}
        return made | rounded | {"block_auto_adjust_ff_dim": draw(st.booleans())}
    return made | {
        "num_dense_layers": draw(st.integers(0, layers)),
        "num_experts": 4,
        "num_experts_per_tok": draw(st.integers(1, 4)),
        "moe_intermediate_size": 8 * draw(st.integers(1, 3)),
    }


def delta(draw: st.DrawFn, common: dict[str, Any]) -> dict[str, Any]:
    """Delta networks whose key heads serve several value heads, and attention, in any order."""
    keys, layers = draw(st.integers(1, 3)), common["num_hidden_layers"]
    made: dict[str, Any] = {
        **heads(draw),
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * draw(st.integers(1, 3)),
        "linear_key_head_dim": draw(st.integers(1, 8)),
        "linear_value_head_dim": draw(st.integers(1, 8)),
        "linear_conv_kernel_dim": draw(st.integers(1, 5)),
        "attention_bias": draw(st.booleans()),
        "layer_types": draw(st.lists(st.sampled_from(("linear_attention", "full_attention")), min_size=layers, max_size=layers)),
        "intermediate_size": 8 * draw(st.integers(1, 4)),
    }
    if common["model_type"] != "qwen3_5_text":
        made |= {"num_experts": 4, "num_experts_per_tok": draw(st.integers(1, 4)), "moe_intermediate_size": 8, "shared_expert_intermediate_size": 16}
    if common["model_type"] == "qwen3_next":
        made |= {"decoder_sparse_step": draw(st.integers(1, 2)), "mlp_only_layers": draw(st.sampled_from(([], [0])))}
    return made


def t5(draw: st.DrawFn) -> dict[str, Any]:
    """Stacks of different depths."""
    return {
        "d_model": 8 * draw(st.integers(1, 6)),
        "d_kv": draw(st.integers(1, 12)),
        "d_ff": draw(st.integers(1, 40)),
        "num_heads": draw(st.integers(1, 5)),
        "num_layers": draw(st.integers(1, 4)),
        "num_decoder_layers": draw(st.sampled_from((None, 1, 3))),
        "relative_attention_num_buckets": draw(st.integers(4, 40)),
        "feed_forward_proj": draw(st.sampled_from(("relu", "gated-gelu", "gated-silu"))),
        "dropout_rate": draw(st.sampled_from((0.0, 0.1))),
    }


def bart(draw: st.DrawFn) -> dict[str, Any]:
    """Stacks of different depths and widths of networks."""
    heads = draw(st.integers(1, 4))
    return {
        "d_model": heads * draw(st.integers(1, 3)) * 4,
        "encoder_layers": draw(st.integers(1, 3)),
        "decoder_layers": draw(st.integers(1, 3)),
        "encoder_ffn_dim": draw(st.integers(1, 40)),
        "decoder_ffn_dim": draw(st.integers(1, 40)),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "max_position_embeddings": 512,
        "dropout": draw(st.sampled_from((0.0, 0.1))),
    }
