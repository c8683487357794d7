"""Random small configurations of the families with experts, as their own code would accept them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

LATENT = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe_lite")
"""Families with latent attention."""

INDEXED = ("deepseek_v32", "glm_moe_dsa")
"""Those of them that pick keys."""

REMOTE = ("deepseek", "minicpm")
"""Those whose code comes with the model, so that transformers cannot count them."""

FAMILIES = (
    "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "phimoe", "dbrx", *LATENT, "glm4_moe", "ernie4_5_moe", "minimax", "minimax_m2",
    "hunyuan_v1_moe", "gpt_oss", "llama4_text", "dots1", *REMOTE,
)  # fmt: skip

FREE_HEADS = ("mixtral", "qwen3_moe", "dots1", "glm4_moe", "ernie4_5_moe", "minimax", "minimax_m2", "hunyuan_v1_moe", "gpt_oss", "llama4_text")
"""Those whose heads need not share the hidden size."""

COUNT = {
    "mixtral": "num_local_experts", "granitemoe": "num_local_experts", "phimoe": "num_local_experts", "minimax": "num_local_experts",
    "minimax_m2": "num_local_experts", "gpt_oss": "num_local_experts", "llama4_text": "num_local_experts", "qwen2_moe": "num_experts",
    "qwen3_moe": "num_experts", "olmoe": "num_experts", "hunyuan_v1_moe": "num_experts", "minicpm": "num_experts", "ernie4_5_moe": "moe_num_experts",
    "dbrx": "moe_num_experts", "deepseek": "n_routed_experts", "deepseek_v2": "n_routed_experts", "deepseek_v3": "n_routed_experts",
    "deepseek_v32": "n_routed_experts", "glm_moe_dsa": "n_routed_experts", "glm4_moe": "n_routed_experts", "dots1": "n_routed_experts",
    "glm4_moe_lite": "n_routed_experts",
}  # fmt: skip
"""What a family's files call the number of experts."""

CHOICE = {"ernie4_5_moe": "moe_k", "dbrx": "moe_top_k", "hunyuan_v1_moe": "moe_topk"}
"""What they call the number that a token visits, where that is not ``num_experts_per_tok``."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "qwen2_moe": ("qkv_bias", "norm_topk_prob"),
    "qwen3_moe": ("attention_bias", "norm_topk_prob"),
    "olmoe": ("attention_bias", "norm_topk_prob"),
    "granitemoe": ("attention_bias",),
    "phimoe": ("attention_bias", "lm_head_bias"),
    "deepseek_v2": ("attention_bias", "mlp_bias"),
    "deepseek_v3": ("attention_bias", "norm_topk_prob", "rope_interleave"),
    "deepseek_v32": ("attention_bias", "norm_topk_prob"),
    "glm_moe_dsa": ("attention_bias", "norm_topk_prob"),
    "glm4_moe": ("attention_bias", "use_qk_norm", "norm_topk_prob"),
    "glm4_moe_lite": ("attention_bias", "norm_topk_prob", "rope_interleave"),
    "dots1": ("attention_bias", "norm_topk_prob"),
    "ernie4_5_moe": ("use_bias",),
    "hunyuan_v1_moe": ("attention_bias",),
    "gpt_oss": ("attention_bias",),
    "llama4_text": ("attention_bias", "use_qk_norm", "attn_temperature_tuning"),
    "deepseek": ("attention_bias", "norm_topk_prob", "seq_aux"),
}
"""What a file may switch on and off."""


@st.composite
def configs(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """A config.json of a small model whose sizes go together.

    Args:
        draw: of hypothesis.
        model_type: one of `FAMILIES`.
    """
    kv_heads, group, head_dim, layers = draw(st.integers(1, 3)), draw(st.integers(1, 3)), 4 * draw(st.integers(1, 6)), draw(st.integers(1, 4))
    if model_type in LATENT:
        group = 1
    heads, groups = kv_heads * group, draw(st.integers(1, 3))
    count = groups * draw(st.integers(1, 3)) if model_type != "phimoe" else draw(st.integers(2, 5))
    top_k = 2 if model_type == "phimoe" else draw(st.integers(1, count))
    made = {
        "model_type": model_type,
        "hidden_size": heads * (2 * draw(st.integers(1, 8)) if model_type in FREE_HEADS else head_dim),
        "intermediate_size": draw(st.integers(1, 48)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": draw(st.integers(2, 90)),
        "tie_word_embeddings": draw(st.booleans()) and model_type != "dbrx",
        "max_position_embeddings": 64,
        "hidden_act": "silu",
        "pad_token_id": 0,
        COUNT[model_type]: count,
        CHOICE.get(model_type, "num_experts_per_tok"): top_k,
    } | {key: draw(st.booleans()) for key in OPTIONS.get(model_type, ())}
    if model_type in FREE_HEADS:
        made["head_dim"] = head_dim
    return made | own(draw, model_type, layers) | (latent(draw, model_type, groups) if model_type in LATENT else {}) | nested(made, model_type)


def own(draw: st.DrawFn, model_type: str, layers: int) -> dict[str, Any]:
    """The keys of one family alone."""
    width = draw(st.integers(1, 24))
    first = {"first_k_dense_replace": draw(st.integers(0, layers)), "moe_intermediate_size": width, "n_shared_experts": draw(st.integers(1, 2))}
    some = [i for i in range(layers) if draw(st.booleans())]
    kinds = st.lists(st.booleans(), min_size=layers, max_size=layers)
    made: dict[str, Any] = {"mixtral": {"sliding_window": None}, "minicpm": {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 8}}.get(model_type, {})
    if model_type in LATENT or model_type in ("glm4_moe", "deepseek", "dots1"):
        made = first | ({"n_group": 1, "topk_group": 1, "partial_rotary_factor": 0.5} if model_type == "glm4_moe" else {})
        made |= {"sliding_window": None, "n_group": 1, "topk_group": 1} if model_type == "dots1" else {}
    elif model_type in ("qwen2_moe", "qwen3_moe"):
        made = {"decoder_sparse_step": draw(st.integers(1, 2)), "mlp_only_layers": some, "use_sliding_window": False, "sliding_window": None}
        made |= {"moe_intermediate_size": width} | ({"shared_expert_intermediate_size": draw(st.integers(1, 24))} if model_type == "qwen2_moe" else {})
    elif model_type == "ernie4_5_moe":
        made = {"moe_layer_start_index": draw(st.integers(0, layers - 1)), "moe_layer_end_index": draw(st.sampled_from((-1, layers - 1)))}
        made |= {"moe_layer_interval": 1, "moe_intermediate_size": width, "moe_num_shared_experts": draw(st.integers(0, 2))}
    elif model_type == "minimax":
        made = {"block_size": 4, "layer_types": ["linear_attention" if linear else "full_attention" for linear in draw(kinds)], "sliding_window": None}
    elif model_type == "minimax_m2":
        made = {"rotary_dim": 4}
    elif model_type == "gpt_oss":
        types = ["sliding_attention" if windowed else "full_attention" for windowed in draw(kinds)]
        made = {"sliding_window": draw(st.integers(1, 70)), "layer_types": types}
    elif model_type == "llama4_text":
        made = {"intermediate_size_mlp": width, "moe_layers": some, "attention_chunk_size": draw(st.integers(1, 70))}
        made |= {"no_rope_layers": [int(turns) for turns in draw(kinds)]}
    return made


def latent(draw: st.DrawFn, model_type: str, groups: int) -> dict[str, Any]:
    """The keys of latent attention, and of a choice within groups."""
    rope = 2 * draw(st.integers(1, 4))
    low = st.integers(1, 12)
    made = {
        "q_lora_rank": draw(low if model_type in INDEXED else st.none() | low),
        "kv_lora_rank": draw(low),
        "qk_nope_head_dim": draw(low),
        "qk_rope_head_dim": rope,
        "v_head_dim": draw(low),
        "n_group": groups,
        "topk_group": draw(st.integers(1, groups)),
    }
    if model_type == "deepseek_v2":
        made["topk_method"] = draw(st.sampled_from(("greedy", "group_limited_greedy")))
    if model_type in INDEXED:
        made |= {"index_n_heads": draw(st.integers(1, 3)), "index_head_dim": rope + draw(low), "index_topk": draw(st.integers(1, 70))}
    if model_type == "glm_moe_dsa":
        made |= {"index_topk_freq": draw(st.integers(1, 3)), "index_skip_topk_offset": draw(st.integers(1, 3))}
    return made


def nested(made: dict[str, Any], model_type: str) -> dict[str, Any]:
    """DBRX's files hold two objects, and names of their own."""
    if model_type != "dbrx":
        return {}
    experts = {"moe_num_experts": made["moe_num_experts"], "moe_top_k": made["moe_top_k"], "ffn_hidden_size": made["intermediate_size"]}
    return {
        "d_model": made["hidden_size"],
        "n_heads": made["num_attention_heads"],
        "n_layers": made["num_hidden_layers"],
        "max_seq_len": 64,
        "attn_config": {"kv_n_heads": made["num_key_value_heads"], "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": experts,
    }
